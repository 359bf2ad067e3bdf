// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
)

func TestManySendersAtOnceLoseNothing(t *testing.T) {
	cfg := testConfig()
	cfg.FlushInterval, cfg.InstanceID = time.Millisecond, "me"
	sink := new(consumertest.MetricsSink)
	c, err := newConnector(cfg, connectortest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	c.Metrics.Next = sink
	require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
	td := batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}, span{"p", 3000, 5000, prefill, 2, 0, ""})
	td.MarkReadOnly()
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for range 100 {
				assert.NoError(t, c.ConsumeTraces(context.Background(), td))
			}
		})
	}
	senders.Wait()
	require.NoError(t, c.Shutdown(context.Background()))
	all := sink.AllMetrics()
	got := values(t, all[len(all)-1])
	const key = "gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section " +
		"gpu.timing.status:ok]"
	assert.Equal(t, int64(1600), got[key])
	// A count never decreases from one output to the next.
	last := int64(0)
	for _, md := range all {
		if n, there := values(t, md)[key]; there { // absent while other series start
			require.GreaterOrEqual(t, n, last)
			last = n.(int64)
		}
	}
}
