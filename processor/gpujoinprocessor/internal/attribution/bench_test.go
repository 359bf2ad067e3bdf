// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/otelgpu/otelgpu/internal/cputime"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// BenchmarkOverlap measures one span with n others active concurrently, from arrival to settled. A
// span lasts half to one and a half times the time in which n others arrive, so that spans end in a
// different order than they start.
func BenchmarkOverlap(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := attribution.New(attribution.Limits{Remember: time.Millisecond}, &attribution.Budget{Max: 1 << 22})
			const gap = 1000
			var k attribution.Key
			k.Trace[0] = 1
			i := int64(0)
			var flow attribution.Meter = rate{1}
			rng := rand.New(rand.NewPCG(1, 2))
			arrive := func() {
				i++
				binary.BigEndian.PutUint64(k.Span[:], uint64(i))
				d.Add(attribution.Span{
					Key: k, Process: uint64(i % 4), Start: i * gap,
					End: (i+int64(n)/2+rng.Int64N(int64(n)))*gap + 1,
				}, 0, flow)
				if i%64 == 0 {
					d.Settle((i-10)*gap, flow)
				}
			}
			for range 3 * n {
				arrive()
			}
			b.ReportAllocs()
			from := cputime.Used()
			for b.Loop() {
				arrive()
			}
			b.ReportMetric(float64((cputime.Used()-from).Nanoseconds())/float64(b.N), "cpu-ns/span")
		})
	}
}

// BenchmarkConnections measures one span of n connections, each of which sends a request of 64
// spans for the same time, while six seconds of them wait.
func BenchmarkConnections(b *testing.B) {
	for _, n := range []int64{1, 2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := attribution.New(attribution.Limits{Remember: time.Millisecond}, &attribution.Budget{Max: 1 << 22})
			const request, waiting = 64, 75_000
			gap := n * 80_000 // ns, for 12,500 spans a second
			var k attribution.Key
			k.Trace[0] = 1
			i := int64(0)
			var flow attribution.Meter = rate{1}
			arrive := func() {
				round, connection, at := i/(n*request), i/request%n, i%request
				i++
				binary.BigEndian.PutUint64(k.Span[:], uint64(i))
				start := (round*request+at)*gap + connection
				d.Add(attribution.Span{Key: k, Process: uint64(connection), Start: start, End: start + 1_000_000}, 0, flow)
				if i%request == 0 {
					d.Settle(start-waiting/n*gap, flow)
				}
			}
			for range 2 * waiting {
				arrive()
			}
			b.ReportAllocs()
			from := cputime.Used()
			for b.Loop() {
				arrive()
			}
			b.ReportMetric(float64((cputime.Used()-from).Nanoseconds())/float64(b.N), "cpu-ns/span")
		})
	}
}
