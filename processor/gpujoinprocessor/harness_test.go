// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pipeline"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

// paced returns a function for Reject that behaves like the queue of an exporter: it has space for
// size requests and sends one each interval.
func paced(size int, interval time.Duration) func() error {
	var empty time.Time // when all will be sent
	return func() error {
		now := time.Now()
		if empty.Before(now) {
			empty = now
		}
		if empty.Sub(now) > time.Duration(size-1)*interval {
			return sinktest.ErrRejected
		}
		empty = empty.Add(interval)
		return nil
	}
}

// fanOut returns the Collector's own fan-out to several consumers.
func fanOut(t testing.TB, to ...*sinktest.Sink) consumer.Traces {
	all := map[pipeline.ID]consumer.Traces{}
	var ids []pipeline.ID
	for i, s := range to {
		id := pipeline.NewIDWithName(pipeline.SignalTraces, fmt.Sprint(i))
		all[id], ids = s, append(ids, id)
	}
	next, err := connector.NewTracesRouter(all).Consumer(ids...)
	require.NoError(t, err)
	return next
}
