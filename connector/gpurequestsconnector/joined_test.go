// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

type extensions map[component.ID]component.Component

func (e extensions) GetExtensions() map[component.ID]component.Component { return e }

func device(n int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n) }

// joined returns the output of gpu_join for a request whose spans are within 3 s from now, on three
// devices of 100 W, 200 W and 300 W.
func joined(t *testing.T, td ptrace.Traces) ptrace.Traces {
	out := joinedAt(t, map[int]ptrace.Traces{30: td})
	require.Len(t, out, 1)
	return out[0]
}

// joinedAt is joined for requests that arrive after so many samples, 100 ms apart.
func joinedAt(t *testing.T, requests map[int]ptrace.Traces) []ptrace.Traces {
	ctx := context.Background()
	samples := gpusamplesextension.NewFactory()
	ext, err := samples.Create(ctx, extensiontest.NewNopSettings(samples.Type()), samples.CreateDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, ext.Start(ctx, componenttest.NewNopHost()))
	var devices []devicesamples.DeviceWriter
	for n := range 3 {
		w, err := ext.(devicesamples.Writer).Register(component.MustNewID("gpu"),
			devicesamples.Device{ID: device(n), Interval: 100 * time.Millisecond})
		require.NoError(t, err)
		devices = append(devices, w)
	}
	id := component.MustNewID("gpu_samples")
	f := gpujoinprocessor.NewFactory()
	cfg := f.CreateDefaultConfig().(*gpujoinprocessor.Config)
	cfg.Samples = &id
	out := new(consumertest.TracesSink)
	p, err := f.CreateTraces(ctx, processortest.NewNopSettings(f.Type()), cfg, out)
	require.NoError(t, err)
	require.NoError(t, p.Start(ctx, extensions{id: ext}))
	for i := range 300 {
		for n, w := range devices {
			s := devicesamples.Sample{Time: time.Now().UnixNano()}
			s.Set(devicesamples.Energy, 10*float64(i*(n+1)))
			w.Write([]devicesamples.Sample{s})
		}
		if td, ok := requests[i]; ok {
			require.NoError(t, p.ConsumeTraces(ctx, td))
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(t, p.Shutdown(ctx))
	require.NoError(t, ext.Shutdown(ctx))
	return out.AllTraces()
}

// randomWork returns trees of steps, sections, kernels and host spans of two processes and three
// devices, with batches, in random order.
func randomWork(rng *rand.Rand) ptrace.Traces {
	type work struct {
		parent     int
		start, end float64 // s
		kind       string  // "": host span
		device     int
		process    int
	}
	zero, td := time.Now(), ptrace.NewTraces()
	var all []work
	for i := range 2 + rng.IntN(10) {
		x := work{
			parent: -1, start: 0.2 + 2*rng.Float64(), device: rng.IntN(3), process: rng.IntN(2),
			kind: []string{"", "section", "section", "step", "step", "collective", "graph"}[rng.IntN(7)],
		}
		x.end = x.start + 0.05 + 0.7*rng.Float64()
		if i > 0 && rng.IntN(3) > 0 {
			x.parent = rng.IntN(i)
			up := all[x.parent]
			x.process, x.start = up.process, up.start+rng.Float64()*(up.end-up.start)/2
			x.end = x.start + (up.end-x.start)*rng.Float64()
			if rng.IntN(3) > 0 {
				x.device = up.device
			}
		}
		all = append(all, x)
	}
	at := func(s float64) pcommon.Timestamp {
		return pcommon.NewTimestampFromTime(zero.Add(time.Duration(s * 1e9)))
	}
	for _, i := range rng.Perm(len(all)) {
		x := all[i]
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.instance.id", fmt.Sprint(x.process))
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{0xee})
		s.SetSpanID(id(i))
		if x.parent >= 0 {
			s.SetParentSpanID(id(x.parent))
		}
		s.SetStartTimestamp(at(x.start))
		s.SetEndTimestamp(at(x.end))
		if x.kind == "" {
			continue
		}
		s.Attributes().PutStr("gpu.operation.type", x.kind)
		s.Attributes().PutStr("hw.id", device(x.device))
		for range rng.IntN(3) * rng.IntN(2) {
			l := s.Links().AppendEmpty()
			l.SetTraceID(pcommon.TraceID{1})
			l.SetSpanID(id(1_000_000 + rng.IntN(3)))
		}
	}
	return td
}

// byID returns the spans of randomWork in the order of their IDs.
func byID(td ptrace.Traces) []ptrace.ResourceSpans {
	var list []ptrace.ResourceSpans
	for _, rs := range td.ResourceSpans().All() {
		list = append(list, rs)
	}
	slices.SortFunc(list, func(a, b ptrace.ResourceSpans) int {
		x, y := a.ScopeSpans().At(0).Spans().At(0).SpanID(), b.ScopeSpans().At(0).Spans().At(0).SpanID()
		return bytes.Compare(x[:], y[:])
	})
	return list
}

// ownEnergy returns the energy of spans without their descendants.
func ownEnergy(td ptrace.Traces) (total float64) {
	for _, rs := range td.ResourceSpans().All() {
		at := rs.ScopeSpans().At(0).Spans().At(0).Attributes()
		own, ok := at.Get("gpu.self_energy")
		if !ok {
			own, ok = at.Get("gpu.energy")
		}
		if ok {
			total += own.Double()
		}
	}
	return total
}

// All energy that gpu_join attributes to spans belongs to a request or is unattributed, for any
// nesting of steps and batches on any devices.
func TestEnergyOfJoinedWorkIsConserved(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			td := joined(t, randomWork(rand.New(rand.NewPCG(seed, 5))))
			total := ownEnergy(td)
			b := newTest(t, nil)
			b.take(td, clock)
			b.due(clock, true)
			assert.InDelta(t, total, b.stats.charged+b.stats.unassigned, 1e-9*(1+total), "seed %d", seed)
		})
	}
}

// The same for spans that arrive up to 20 s late, after their parents: what gpu_join released
// before does not include them.
func TestEnergyOfLateWorkIsConserved(t *testing.T) {
	for seed := range uint64(300) {
		var total, counted float64
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			all, requests, arrival := randomWork(rng), map[int]ptrace.Traces{}, map[pcommon.SpanID]int{}
			for _, rs := range byID(all) { // parents first
				s := rs.ScopeSpans().At(0).Spans().At(0)
				at := max([]int{30, 32, 100, 101, 200}[rng.IntN(5)], arrival[s.ParentSpanID()])
				arrival[s.SpanID()] = at
				if _, ok := requests[at]; !ok {
					requests[at] = ptrace.NewTraces()
				}
				rs.CopyTo(requests[at].ResourceSpans().AppendEmpty())
			}
			b := newTest(t, nil)
			for _, td := range joinedAt(t, requests) {
				total += ownEnergy(td)
				b.take(td, clock)
			}
			b.due(clock, true)
			counted = b.stats.charged + b.stats.unassigned
		})
		assert.InDelta(t, total, counted, 1e-9*(1+total), "seed %d", seed)
	}
}

// A step is charged with the work below it on all devices.
func TestWorkOfAThirdDeviceBelowASectionIsCharged(t *testing.T) {
	for name, tt := range map[string]struct {
		parent, linked int // of the section on the third device
	}{
		"below the step":                  {0, 0},
		"below a section":                 {1, 0},
		"below a section, with own links": {1, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			zero, td := time.Now(), ptrace.NewTraces()
			at := func(ms int) pcommon.Timestamp {
				return pcommon.NewTimestampFromTime(zero.Add(time.Duration(ms) * time.Millisecond))
			}
			for i, x := range []struct{ parent, start, end int }{{-1, 500, 2500}, {0, 500, 1500}, {tt.parent, 500, 1000}} {
				rs := td.ResourceSpans().AppendEmpty()
				rs.Resource().Attributes().PutStr("service.instance.id", "engine")
				s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
				s.SetTraceID(pcommon.TraceID{0xee})
				s.SetSpanID(id(i))
				s.Attributes().PutStr("gpu.operation.type", "section")
				if x.parent >= 0 {
					s.SetParentSpanID(id(x.parent))
				} else {
					s.Attributes().PutStr("gpu.operation.type", "step")
				}
				s.SetStartTimestamp(at(x.start))
				s.SetEndTimestamp(at(x.end))
				s.Attributes().PutStr("hw.id", device(i)) // of 100, 200 and 300 W
				if i == 0 || i == tt.linked {
					l := s.Links().AppendEmpty()
					l.SetTraceID(pcommon.TraceID{1})
					l.SetSpanID(id(1000))
				}
			}
			b := newTest(t, nil)
			b.take(joined(t, td), clock)
			b.due(clock, true)
			assert.InEpsilon(t, 200+200+150, b.stats.charged, 1e-9, name)
			assert.InDelta(t, 0, b.stats.unassigned, 1e-6, name)
		})
	}
}

// An engine's iterations link to all eight requests, of which one is sampled: it has an eighth of
// the device's energy, the others have theirs in metrics only, and nothing is lost.
func TestASampledRequestAmongUnsampledOnesHasItsShareOfEachBatch(t *testing.T) {
	const requests, iterations = 8, 20
	synctest.Test(t, func(t *testing.T) {
		zero, td := time.Now(), ptrace.NewTraces()
		at := func(ms int) pcommon.Timestamp {
			return pcommon.NewTimestampFromTime(zero.Add(time.Duration(ms) * time.Millisecond))
		}
		for i := range iterations {
			rs := td.ResourceSpans().AppendEmpty()
			rs.Resource().Attributes().PutStr("service.instance.id", "engine")
			s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
			s.SetName("decode")
			s.SetTraceID(pcommon.TraceID{0xee})
			s.SetSpanID(id(i))
			s.SetStartTimestamp(at(200 + 100*i))
			s.SetEndTimestamp(at(300 + 100*i))
			s.Attributes().PutStr("gpu.operation.type", "section")
			s.Attributes().PutStr("hw.id", device(0))
			for r := range requests {
				l := s.Links().AppendEmpty()
				l.SetTraceID(pcommon.TraceID{byte(1 + r)})
				l.SetSpanID(id(1000 + r))
				l.SetFlags(knownParent)
				if r == 0 {
					l.SetFlags(knownParent | sampled)
				}
				l.Attributes().PutInt("gpu.operation.items", 1)
			}
		}
		const total = 10. * iterations // the device consumes 10 J in each iteration
		b := newTest(t, nil)
		b.take(joined(t, td), clock)
		closed := b.due(clock, true)
		assert.Len(t, closed, requests)
		for _, r := range closed {
			assert.InEpsilon(t, total/requests, r.accounts[0].energy, 0.05)
			assert.Equal(t, r.Trace != pcommon.TraceID{1}, r.unsampled)
		}
		assert.InEpsilon(t, total, b.stats.charged, 1e-9)
		assert.Zero(t, b.stats.unassigned)
		assert.Len(t, written(t, closed), 1, "unsampled requests have no spans")
	})
}
