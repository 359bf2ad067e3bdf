// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// A pending span takes at most HeldSpanBytes of heap, including its entry in the energy
// attribution.
func TestMemoryOfAHeldSpan(t *testing.T) {
	const requests, spans = 64, 1024
	x := newBench(t)
	// No span is released before the heap is measured, however slow the test, because the next
	// component would unpack it.
	r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait = time.Hour, 2*time.Hour })
	defer r.close()
	for _, id := range x.ids {
		dev := nominal
		dev.ID = id
		r.device(dev).Write(one(x.now, x.now))
	}
	before := heap()
	for n := range requests {
		td := x.request(spans, time.Now().Add(-time.Second))
		for s := range spansOf(td) {
			id := s.SpanID()
			id[0], id[1] = byte(n>>8), byte(n)
			s.SetSpanID(id)
			trace := s.TraceID()
			binary.BigEndian.PutUint64(trace[8:], uint64(n)*2654435761)
			s.SetTraceID(trace)
			s.Attributes().PutDouble("gpu.end.delay", float64(id[7])*1.1e-6)
		}
		require.NoError(t, r.proc.ConsumeTraces(context.Background(), td))
	}
	perSpan := (heap() - before) / (requests * spans)
	require.EqualValues(t, requests*spans, r.proc.(*joinProcessor).stats.held.Load(), "all of them wait")
	runtime.KeepAlive(x)
	t.Logf("%.0f bytes per waiting span", perSpan)
	assert.Less(t, perSpan, float64(HeldSpanBytes))
	assert.Greater(t, perSpan, float64(HeldSpanBytes)/2, "sizing is not far off either")
}

// The error names the settings to change, and the sender may retry.
func TestFullQueueNamesItsSettings(t *testing.T) {
	x := newBench(t)
	r := newRig(t).join(func(c *Config) { c.Queue.Size = 300_000 })
	defer r.close()
	dev := nominal
	dev.ID = x.ids[0]
	r.device(dev).Write(one(x.now, x.now))
	var err error
	for n := 0; err == nil && n < 10; n++ {
		td := x.request(512, time.Now().Add(-time.Second))
		for s := range spansOf(td) {
			id := s.SpanID()
			id[0] = byte(n + 1)
			s.SetSpanID(id)
		}
		err = r.proc.ConsumeTraces(context.Background(), td)
	}
	require.ErrorIs(t, err, exporterhelper.ErrQueueIsFull)
	assert.ErrorContains(t, err, "queue full: 300000 bytes of spans wait for ")
	assert.ErrorContains(t, err, "(raise `queue::size` or lower `settle`)")
	assert.False(t, consumererror.IsPermanent(err))
	assert.EqualValues(t, 512, r.count("refused_spans", "queue_full"))
}
