// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// BenchmarkSecondOfEightGPUs is one second of sampling 8 GPUs at 10 Hz, go-dcgm and the stub included:
// ns/op divided by 1e9 is the share of one core. What a real client library takes for its connection is not in it.
func BenchmarkSecondOfEightGPUs(b *testing.B) {
	m := machine{"gpus": 8, "gpm": 0xff, "now": baseTime}
	set := settings()
	set.Slow = time.Hour
	s := open(b, m, set)
	read(b, s)
	batch := &gpudata.Batch{}
	b.ReportAllocs()
	b.ResetTimer()
	values := 0
	for b.Loop() {
		m.advance(b, time.Second)
		batch.Reset()
		require.NoError(b, s.Read(batch))
		values += len(batch.Values)
	}
	b.ReportMetric(float64(values)/float64(b.N), "values/op")
}
