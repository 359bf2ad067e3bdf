// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// BenchmarkSecond measures one second of sampling, including the stub of DCGM's library with a
// buffer of 4 MiB per round trip, as in the real one: ns/op divided by 1e9 is the share of one
// core. It excludes connecting. "call for each board" reads as dcgm-exporter does with one scrape
// per second: the newest values, with one call per board.
func BenchmarkSecond(b *testing.B) {
	for _, gpus := range []int{8, 32} {
		b.Run(fmt.Sprintf("%d GPUs/call for each board", gpus), func(b *testing.B) {
			s := open(b, machine{"gpus": gpus, "gpm": uint32(0xffffffff), "now": baseTime}, settings())
			fields, err := s.session.fieldGroup("bench", slices.Concat(listed[gpuquantity.Fast], listed[gpuquantity.Slow]))
			require.NoError(b, err)
			var groups []uintptr
			for _, e := range s.session.watched(entityGPU) {
				g, err := s.session.group([]entity{e})
				require.NoError(b, err)
				require.NoError(b, s.session.api.watch(g, fields, 1e6, 10))
				groups = append(groups, g)
			}
			before := trips(b)
			for b.Loop() {
				for _, g := range groups {
					require.NoError(b, s.session.api.latest(g, fields, func(*rawValue) {}))
				}
			}
			b.ReportMetric(float64(trips(b)-before)/float64(b.N), "trips/op")
		})
		for _, sampling := range []time.Duration{time.Second, 100 * time.Millisecond} {
			b.Run(fmt.Sprintf("%d GPUs/samples every %s", gpus, sampling), func(b *testing.B) {
				m := machine{"gpus": gpus, "gpm": uint32(0xffffffff), "now": baseTime}
				set := settings()
				set.Sampling, set.Slow, set.Processes, set.Without = sampling, 10*time.Second, true, pipes
				s := open(b, m, set)
				read(b, s)
				batch := &gpudata.Batch{}
				b.ReportAllocs()
				values, before, done := 0, trips(b), time.Duration(0)
				for b.Loop() {
					for end := done/time.Second*time.Second + time.Second; done < end; done += s.Pace() {
						m.advance(b, s.Pace())
						batch.Reset()
						require.NoError(b, s.Read(batch))
						values += len(batch.Values)
					}
				}
				// With an interval of 2 s, some seconds have no read, but count, too.
				scale := float64(done/time.Second) / float64(b.N)
				b.ReportMetric(float64(values)/float64(b.N)/scale, "values/s")
				b.ReportMetric(float64(trips(b)-before)/float64(b.N)/scale, "trips/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/scale, "ns/s")
			})
		}
	}
}
