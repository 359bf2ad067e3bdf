// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"flag"
	"math"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/golden"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

var update = flag.Bool("update", false, "write testdata/two_senders.yaml")

// TestTwoSendersGolden has a trainer and an inference server on one device with interleaved
// batches, and shows what a user of the whole pipeline gets. In the second second, the device works
// harder, is throttled by its power limit, and reports an XID.
func TestTwoSendersGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		r := newRig(t).join(func(c *Config) { c.Events = true })
		defer r.close()
		d := nominal
		d.Source = "dcgm"
		w := r.device(d)
		r.run(w, func(now time.Time, s *devicesamples.Sample) {
			x := now.Sub(zero).Seconds()
			busy := x > 1.95 && x < 2.95
			s.Set(devicesamples.Energy, math.Round(1000*(200*x+400*min(max(x-2, 0), 1)))/1000)
			watts, util, mask := 200., 0.5, 0.
			if busy {
				watts, util, mask = 600, 1, float64(devicesamples.ThrottleSWPowerCap)
			}
			s.Set(devicesamples.Power, watts)
			s.Set(devicesamples.Temperature, 50+math.Round(2*x))
			s.Set(devicesamples.Utilization, util)
			s.Set(devicesamples.SMUtilization, util/2)
			s.Set(devicesamples.TensorUtilization, util/4)
			s.Set(devicesamples.DRAMUtilization, 0.125)
			s.Set(devicesamples.ClockSM, 1.5e9)
			s.Set(devicesamples.MemoryUsed, 32<<30)
			s.Set(devicesamples.Throttle, mask)
		})
		time.Sleep(1500 * time.Millisecond)
		trainer1 := newTraces("trainer")
		trainer1.gpu(2, 1, at(1), at(1.5)).SetName("forward")
		server := newTraces("server")
		server.gpu(20, 0, at(1), at(1.25)).SetName("prefill")
		server.scope("http").host(19, 0, at(0.9), at(1.4)).SetName("POST /v1/completions")
		r.consume(server.Traces)
		r.consume(trainer1.Traces)
		time.Sleep(1500 * time.Millisecond)
		w.WriteEvents([]devicesamples.Event{
			{
				Time: at(2.25).UnixNano(), Kind: devicesamples.EventThrottleStart,
				Code: int64(devicesamples.ThrottleSWPowerCap),
			},
			{Time: at(2.5).UnixNano(), Kind: devicesamples.EventXID, Code: 63},
		})
		trainer2 := newTraces("trainer")
		trainer2.gpu(3, 1, at(1.5), at(2.75)).SetName("backward")
		trainer2.gpu(1, 0, at(1), at(3)).SetName("train")
		server2 := newTraces("server")
		server2.gpu(21, 0, at(2), at(2.5)).SetName("decode")
		r.consume(trainer2.Traces)
		r.consume(server2.Traces)
		settle()

		got := ptrace.NewTraces()
		for _, td := range r.sink.AllTraces() {
			require.NoError(t, conformance.Traces(td))
			for s := range spansOf(td) {
				for _, v := range s.Attributes().All() {
					if v.Type() == pcommon.ValueTypeDouble { // the last digits differ between CPU architectures
						v.SetDouble(math.Round(v.Double()*1e9) / 1e9)
					}
				}
			}
			td.ResourceSpans().MoveAndAppendTo(got.ResourceSpans())
		}
		file := filepath.Join("testdata", "two_senders.yaml")
		if *update {
			require.NoError(t, golden.WriteTracesToFile(file, got))
		}
		want, err := golden.ReadTraces(file)
		require.NoError(t, err)
		require.NoError(t, ptracetest.CompareTraces(want, got))
	})
}
