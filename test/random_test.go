// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

// All events are on a grid of milliseconds, and the counter of a device is linear between two
// samples of 100 ms, so the share of each span can be computed millisecond by millisecond from the
// definition.
const (
	length  = 3000 // ms
	samples = 100  // ms
	beyond  = 1000 // maximum ms after length with a clock that is ahead
)

// made is a generated span of a random topology.
type made struct {
	id         uint64
	parent     int // index in the list; -1: none
	device     int
	process    int
	start, end int // ms
	host       bool
	served     bool    // timed by the host while a request uses its device, or all devices if device is -1
	through    bool    // its parent is a host span below the real parent
	energy     float64 // own energy, by brute force
	links      []int   // requests
	late, turn int     // its position among the spans that arrive after their time was settled, and its payload's; 0: in time
	bad        bool    // invalid times or values
	unknown    bool    // names an unknown device
}

// topology has devices, the processes that use them, and their payloads.
type topology struct {
	rng       *rand.Rand
	devices   [][]reading
	joules    [][]float64 // of each device by ms, according to its readings
	spans     []made
	requests  int
	payloads  [][]int // spans of each payload
	regrouped int     // host spans in requests that a sender regrouped from parts of others
	charged   int     // 1: energy of requests was compared
}

func newTopology(seed uint64) *topology {
	rng := rand.New(rand.NewPCG(seed, 4242))
	x := &topology{rng: rng, requests: 1 + rng.IntN(4)}
	for range 1 + rng.IntN(2) {
		flow := make([]float64, length)
		for from := 0; from < length; from += samples {
			watts := 50 + 650*rng.Float64()
			for ms := from; ms < from+samples; ms++ {
				flow[ms] = watts / 1000
			}
		}
		readings := read(rng, flow)
		x.devices = append(x.devices, readings)
		x.joules = append(x.joules, told(readings))
	}
	processes := 1 + rng.IntN(3)
	for range 1 + rng.IntN(25) {
		s := made{id: uint64(len(x.spans) + 1), parent: -1, device: rng.IntN(len(x.joules)), process: rng.IntN(processes)}
		s.start = rng.IntN(length - 10)
		s.end = s.start + 1 + rng.IntN(min(800, length-s.start-1))
		if p := rng.IntN(2*len(x.spans) + 1); p < len(x.spans) && !x.spans[p].bad && !x.spans[p].unknown {
			// A child belongs to its parent's process, and is mostly on its device.
			of := &x.spans[p]
			s.parent, s.device, s.process = p, of.device, of.process
			if s.device < 0 || rng.IntN(4) == 0 {
				s.device = rng.IntN(len(x.joules))
			}
			s.start = of.start + rng.IntN(of.end-of.start)
			s.end = s.start + 1 + rng.IntN(of.end-s.start)
			s.through = rng.IntN(3) == 0
		}
		switch rng.IntN(20) {
		case 0:
			s.bad = true
		case 1:
			s.unknown = s.parent < 0
		case 2, 3:
			s.host = s.parent < 0
		case 4, 5:
			s.host, s.served = s.parent < 0, s.parent < 0
			if s.served && rng.IntN(2) == 0 {
				s.device = -1
			}
		}
		for range rng.IntN(3) * rng.IntN(2) {
			s.links = append(s.links, rng.IntN(x.requests))
		}
		x.spans = append(x.spans, s)
	}
	x.cut()
	x.share()
	return x
}

// reading is a device's energy counter, as its source reads it.
type reading struct {
	at, time int // ms: true time of the reading, and the clock's time
	joules   float64
	again    bool // the source has reopened the device
}

// read returns the readings of a device with this power, one in each sample interval, and fewer
// after the end. Every second device has a fault: its counter is reset, it is lost and returns with
// a new counter, it has no samples for some time, the clock of its host is set forward or back, or
// it never returns.
func read(rng *rand.Rand, flow []float64) (out []reading) {
	const begins, lost, silent, ahead, behind, gone, events = 0, 1, 2, 3, 4, 5, 12
	event, from, while := rng.IntN(events), samples*(10+rng.IntN(15)), 50*(1+rng.IntN(18))
	joules, origin, summed := 1e4, 0., 0
	step := samples
	for at := 0; at <= length+40*500; at += step {
		if at == length {
			step = 500
		}
		for ; summed < min(at, length); summed++ {
			joules += flow[summed]
		}
		r := reading{at: at, time: at}
		switch {
		case at < from:
		case event == gone, (event == lost || event == silent) && at < from+while:
			continue
		case (event == begins || event == lost) && origin == 0:
			origin, r.again = joules-10*rng.Float64(), event == lost
		case event == ahead:
			r.time += while
		case event == behind:
			r.time -= while
		}
		r.joules = joules - origin
		out = append(out, r)
	}
	return out
}

// told returns the energy by ms according to readings: the counter is linear between two of them,
// unless it decreases or they are more than three intervals apart, when the energy is unknown. A
// reading that is not later than the previous one is ignored.
func told(readings []reading) []float64 {
	flow := make([]float64, length+beyond)
	last := readings[0]
	for _, r := range readings[1:] {
		if r.time <= last.time {
			continue
		}
		if gap := r.time - last.time; r.joules >= last.joules && gap <= 3*samples {
			for ms := last.time; ms < min(r.time, len(flow)); ms++ {
				flow[ms] += (r.joules - last.joules) / float64(gap)
			}
		}
		last = r
	}
	return flow
}

// gpu reports whether a span takes part in the attribution.
func (s *made) gpu() bool { return !s.bad && !s.unknown }

// on reports whether a span is on a device.
func (s *made) on(d int) bool { return s.device == d || s.device < 0 }

// active reports whether a span that arrived in time is active.
func (x *topology) active(i, ms int) bool {
	s := &x.spans[i]
	return s.gpu() && s.late == 0 && s.start <= ms && ms < s.end
}

// share divides each device's energy, millisecond by millisecond: equal parts for the active
// processes, and within a process for its innermost spans; host-timed spans get a part only without
// device-timed ones. Late spans get, in their order, the energy that was unattributed.
func (x *topology) share() {
	children := make([][]int, len(x.spans))
	for i := range x.spans {
		if p := x.spans[i].parent; p >= 0 {
			children[p] = append(children[p], i)
		}
	}
	var below func(i, d, ms int) bool
	below = func(i, d, ms int) bool {
		return slices.ContainsFunc(children[i], func(c int) bool { // the ancestors of a missing span are unknown
			return x.spans[c].on(d) && x.active(c, ms) || x.spans[c].late == 0 && below(c, d, ms)
		})
	}
	for d, flow := range x.joules {
		for ms, joules := range flow {
			innermost := map[int][2][]int{}
			for i := range x.spans {
				s := &x.spans[i]
				if !s.on(d) || !x.active(i, ms) || below(i, d, ms) {
					continue
				}
				of := innermost[s.process]
				k := 0
				if s.host {
					k = 1
				}
				of[k] = append(of[k], i)
				innermost[s.process] = of
			}
			if len(innermost) == 0 {
				first := -1
				for i := range x.spans {
					s := &x.spans[i]
					if s.late > 0 && s.gpu() && s.on(d) && s.start <= ms && ms < s.end &&
						(first < 0 || s.late < x.spans[first].late) {
						first = i
					}
				}
				if first >= 0 {
					x.spans[first].energy += joules
				}
			}
			for _, of := range innermost {
				list := of[0]
				if len(list) == 0 {
					list = of[1]
				}
				for _, i := range list {
					x.spans[i].energy += joules / float64(len(innermost)) / float64(len(list))
				}
			}
		}
	}
}

// cut divides spans into payloads of one process each, in any order.
func (x *topology) cut() {
	for _, i := range x.rng.Perm(len(x.spans)) {
		k := slices.IndexFunc(x.payloads, func(p []int) bool {
			return x.spans[p[0]].process == x.spans[i].process && x.rng.IntN(4) > 0
		})
		if k < 0 {
			x.payloads = append(x.payloads, nil)
			k = len(x.payloads) - 1
		}
		x.payloads[k] = append(x.payloads[k], i)
	}
	for k, n := 0, 0; k < len(x.payloads); k++ {
		if x.rng.IntN(8) > 0 {
			continue
		}
		for _, i := range x.payloads[k] {
			n++
			x.spans[i].late, x.spans[i].turn = n, k+1
		}
	}
}

// inclusive returns the energy of a span and its descendants that have arrived when it is released.
// Descendants below a span that is missing are unknown.
func (x *topology) inclusive(i int) float64 {
	var below func(j, turn int) float64
	below = func(j, turn int) float64 {
		sum := x.spans[j].energy
		for k := range x.spans {
			if s := &x.spans[k]; s.parent == j && s.gpu() && s.turn <= turn {
				sum += below(k, turn)
			}
		}
		return sum
	}
	return below(i, x.spans[i].turn)
}

// after reports whether a span arrives late and after a span around it, so that the outer span does
// not include it. gpu_requests cannot know that.
func (x *topology) after(i int) bool {
	s := &x.spans[i]
	for p := s.parent; p >= 0; p = x.spans[p].parent {
		if s.turn > x.spans[p].turn {
			return true
		}
	}
	return false
}

// between is the first ID of inserted host spans.
const between = 2_000_000

// measured reports whether a span's energy is stated: for a span on all devices, only if some
// energy of each is known.
func (x *topology) measured(i int) bool {
	s := &x.spans[i]
	for _, flow := range x.joules {
		if s.device < 0 && !slices.ContainsFunc(flow[s.start:s.end], func(j float64) bool { return j > 0 }) {
			return false
		}
	}
	return true
}

func deviceID(d int) string { return fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", d) }

// request returns the request of a payload.
func (x *topology) request(zero time.Time, payload []int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "random")
	rs.Resource().Attributes().PutStr("service.instance.id", fmt.Sprint("p", x.spans[payload[0]].process))
	ss := rs.ScopeSpans().AppendEmpty()
	at := func(ms int) pcommon.Timestamp {
		return pcommon.NewTimestampFromTime(zero.Add(time.Duration(ms) * time.Millisecond))
	}
	for _, i := range payload {
		m := &x.spans[i]
		s := ss.Spans().AppendEmpty()
		s.SetName(fmt.Sprint("op", m.id%3))
		s.SetTraceID(pcommon.TraceID{7})
		s.SetSpanID(spanOf(m.id))
		if m.parent >= 0 {
			s.SetParentSpanID(spanOf(x.spans[m.parent].id))
		}
		if m.through {
			h := ss.Spans().AppendEmpty()
			h.SetName("between")
			h.SetTraceID(s.TraceID())
			h.SetSpanID(spanOf(between + m.id))
			h.SetParentSpanID(s.ParentSpanID())
			s = ss.Spans().At(ss.Spans().Len() - 2)
			s.SetParentSpanID(h.SpanID())
		}
		s.SetStartTimestamp(at(m.start))
		s.SetEndTimestamp(at(m.end))
		a := s.Attributes()
		a.PutStr("gpu.operation.type", "section")
		a.PutStr("hw.id", deviceID(max(m.device, 0)))
		if m.device < 0 {
			ids := deviceID(0)
			for d := range len(x.joules) - 1 {
				ids += ", " + deviceID(d+1)
			}
			a.PutStr("hw.id", ids)
		}
		a.PutStr("gpu.timing.source", "cuda_event")
		a.PutDouble("gpu.duration", float64(m.end-m.start)/1000)
		if m.host {
			a.PutStr("gpu.timing.source", "host")
			a.Remove("gpu.duration")
		}
		if m.served {
			a.PutStr("gpu.operation.type", "request")
			a.Remove("gpu.timing.source")
			s.SetKind(ptrace.SpanKindServer)
		}
		if m.unknown {
			a.PutStr("hw.id", "GPU-ffffffff-0000-4000-8000-000000000000")
		}
		for _, r := range m.links {
			l := s.Links().AppendEmpty()
			l.SetTraceID(pcommon.TraceID{9, byte(r)})
			l.SetSpanID(spanOf(uint64(1_000_000 + r)))
		}
		if m.bad {
			switch m.id % 8 {
			case 0:
				s.SetEndTimestamp(s.StartTimestamp())
			case 1:
				s.SetEndTimestamp(at(1_000_000)) // a clock that is ahead
			case 2:
				s.SetEndTimestamp(math.MaxUint64)
			case 3:
				s.SetStartTimestamp(0)
			case 4:
				s.SetEndTimestamp(at(m.start - 1))
			case 5:
				s.SetSpanID(pcommon.SpanID{})
			case 6, 7: // a clock that was set forward or back
				hour := (2*int(m.id%2) - 1) * 3_600_000
				s.SetStartTimestamp(at(m.start + hour))
				s.SetEndTimestamp(at(m.end + hour))
				continue
			}
			a.PutDouble("gpu.duration", []float64{math.NaN(), math.Inf(1), -1, 0}[m.id%4])
			a.PutDouble("gpu.io.size", math.NaN())
		}
	}
	return td
}

func spanOf(n uint64) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// counter returns an internal counter of a component, 0 before the first count.
func counter(t *testing.T, tel *componenttest.Telemetry, name, state string) (sum float64) {
	m, err := tel.GetMetric(name)
	if err != nil {
		return 0
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[float64]:
		for _, p := range data.DataPoints {
			if v, ok := p.Attributes.Value("state"); state == "" || ok && v.AsString() == state {
				sum += p.Value
			}
		}
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			sum += float64(p.Value)
		}
	default:
		require.Fail(t, "unexpected", "%T", data)
	}
	return sum
}

type extensions map[component.ID]component.Component

func (x extensions) GetExtensions() map[component.ID]component.Component { return x }

// Sends random devices, processes, trees, links and faults through gpu_join, gpu_metrics and
// gpu_requests, and compares with a count of milliseconds. Requests arrive in any order,
// repeatedly, concurrently with their repetition, and while the next component rejects data; some
// of their spans have invalid times. Counters are reset, devices are lost and may return, and the
// clocks of the devices' hosts and of the senders are set forward and back.
func TestRandomWorkIsSharedCountedAndChargedAsDefined(t *testing.T) {
	t.Parallel()
	cases := 1000
	if testing.Short() {
		cases = 100
	}
	charged := 0
	for seed := range uint64(cases) {
		x := newTopology(seed)
		synctest.Test(t, func(t *testing.T) { x.through(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		charged += x.charged
	}
	t.Logf("%d cases, of %d the requests too", cases, charged)
	require.Greater(t, charged, cases/4)
}

func (x *topology) through(t *testing.T, seed uint64) {
	ctx := t.Context()
	tel := componenttest.NewTelemetry()
	defer func() { require.NoError(t, tel.Shutdown(context.Background())) }()

	f := gpusamplesextension.NewFactory()
	ext, err := f.Create(ctx, extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, ext.Start(ctx, componenttest.NewNopHost()))
	id := component.MustNewID("gpu_samples")
	host := extensions{id: ext}

	delivered, accounts := new(consumertest.TracesSink), new(consumertest.TracesSink)
	operations, requests := new(consumertest.MetricsSink), new(consumertest.MetricsSink)
	settings := connectortest.NewNopSettings(component.MustNewType("gpu_metrics"))
	mf := gpumetricsconnector.NewFactory()
	mc := mf.CreateDefaultConfig().(*gpumetricsconnector.Config)
	metrics, err := mf.CreateTracesToMetrics(ctx, settings, mc, operations)
	require.NoError(t, err)
	rf := gpurequestsconnector.NewFactory()
	set := connectortest.NewNopSettings(rf.Type())
	set.TelemetrySettings = tel.NewTelemetrySettings()
	rc := rf.CreateDefaultConfig()
	charge, err := rf.CreateTracesToTraces(ctx, set, rc, accounts)
	require.NoError(t, err)
	charged, err := rf.CreateTracesToMetrics(ctx, set, rc, requests)
	require.NoError(t, err)
	parts := []component.Component{metrics, charge, charged}
	for _, p := range parts {
		require.NoError(t, p.Start(ctx, host))
	}
	refusals, moods := x.rng.IntN(4), rand.New(rand.NewPCG(seed, 1)) // of the trace store, which is called first
	next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		if refusals > 0 && moods.IntN(2) == 0 {
			refusals--
			return errors.New("not now")
		}
		for _, to := range []consumer.Traces{delivered, metrics, charge, charged} {
			copied := ptrace.NewTraces()
			td.CopyTo(copied)
			require.NoError(t, to.ConsumeTraces(ctx, copied))
		}
		return nil
	})
	require.NoError(t, err)
	jf := gpujoinprocessor.NewFactory()
	jc := jf.CreateDefaultConfig().(*gpujoinprocessor.Config)
	jc.Samples = &id
	jset := processortest.NewNopSettings(jf.Type())
	jset.TelemetrySettings = tel.NewTelemetrySettings()
	join, err := jf.CreateTraces(ctx, jset, jc, next)
	require.NoError(t, err)

	// The devices have samples up to the end of the grid, in any batches.
	zero := time.Now()
	register := func(d int) devicesamples.DeviceWriter {
		w, err := ext.(devicesamples.Writer).Register(component.MustNewID("gpu"),
			devicesamples.Device{ID: deviceID(d), Source: "test"})
		require.NoError(t, err)
		return w
	}
	var writers []devicesamples.DeviceWriter
	for d := range x.joules {
		writers = append(writers, register(d))
	}
	require.NoError(t, join.Start(ctx, host))
	write := func(ms int) {
		for d := range writers {
			i := slices.IndexFunc(x.devices[d], func(r reading) bool { return r.at == ms })
			if i < 0 {
				continue
			}
			r := &x.devices[d][i]
			if r.again {
				writers[d].Close()
				writers[d] = register(d)
			}
			s := devicesamples.Sample{Time: zero.Add(time.Duration(r.time) * time.Millisecond).UnixNano()}
			s.Set(devicesamples.Energy, r.joules)
			writers[d].Write([]devicesamples.Sample{s})
		}
	}
	for ms := 0; ms <= length; ms += samples {
		time.Sleep(time.Until(zero.Add(time.Duration(ms) * time.Millisecond)))
		write(ms)
	}
	// Nothing is settled yet, because gpu_join waits for 5 s. Everything that is sent now gets its
	// share, in any order.
	send := func(p []int) {
		for join.ConsumeTraces(ctx, x.request(zero, p)) != nil { // the next component rejects spans that need not wait
		}
	}
	whole := func(p []int) bool { // so that its repetition is recognizable
		return !slices.ContainsFunc(p, func(i int) bool { return !x.spans[i].gpu() })
	}
	late := func(p []int) bool { return x.spans[p[0]].late > 0 }
	for _, p := range x.payloads {
		if late(p) {
			continue
		}
		send(p)
		if whole(p) && x.rng.IntN(3) == 0 {
			send(p)
		}
		time.Sleep(time.Duration(x.rng.IntN(50)) * time.Millisecond)
	}
	for at := range 40 {
		time.Sleep(500 * time.Millisecond)
		write(length + (at+1)*500)
		for _, p := range x.payloads {
			if whole(p) && !late(p) && x.rng.IntN(40) == 0 {
				send(p) // the response was lost
			}
		}
		if at == 5 { // a restarted sender regroups spans that it does not know to be accepted
			x.regroup(func(p []int) bool { return whole(p) && !late(p) }, send)
		}
	}
	for _, p := range x.payloads {
		if late(p) {
			send(p)
			time.Sleep(5 * time.Second)
		}
	}
	time.Sleep(2 * time.Minute)
	require.NoError(t, join.Shutdown(ctx))
	for _, p := range parts {
		require.NoError(t, p.Shutdown(ctx))
	}
	require.NoError(t, ext.Shutdown(ctx))
	synctest.Wait()
	x.compare(t, tel, delivered.AllTraces(), accounts.AllTraces(), operations.AllMetrics(), requests.AllMetrics())
}

// regroup resends accepted spans in other requests: halves of two payloads of a process.
func (x *topology) regroup(known func([]int) bool, send func([]int)) {
	var last []int
	for _, p := range x.payloads {
		if !known(p) || x.rng.IntN(4) > 0 {
			continue
		}
		if len(last) > 0 && x.spans[last[0]].process != x.spans[p[0]].process {
			last = nil
		}
		mixed := slices.Concat(last[len(last)/2:], p[:(len(p)+1)/2])
		for _, i := range mixed {
			if x.spans[i].through {
				x.regrouped++
			}
		}
		send(mixed)
		last = p
	}
}

// ordered reports whether all spans arrive before their ancestors, or all after them. In other
// orders, gpu_requests cannot know that a batch is inside one that it has charged.
func (x *topology) ordered() bool {
	turn := map[int]int{}
	for _, late := range []bool{false, true} {
		for k, p := range x.payloads {
			if x.spans[p[0]].late > 0 == late {
				for _, i := range p {
					turn[i] = k
					if late {
						turn[i] += len(x.payloads)
					}
				}
			}
		}
	}
	up, down := true, true
	for i := range x.spans {
		if p := x.spans[i].parent; p >= 0 && x.spans[i].gpu() {
			up, down = up && turn[i] <= turn[p], down && turn[i] >= turn[p]
		}
	}
	return up || down
}

func (x *topology) compare(
	t *testing.T, tel *componenttest.Telemetry, delivered, accounts []ptrace.Traces, operations,
	requests []pmetric.Metrics,
) {
	number := func(s ptrace.Span, name string) float64 {
		v, ok := s.Attributes().Get(name)
		if !ok {
			return 0
		}
		return v.Double()
	}
	got := map[uint64]ptrace.Span{}
	count, hosts, self := 0, 0, 0.
	for _, td := range delivered {
		each(td, func(s ptrace.Span) {
			id := s.SpanID()
			if binary.BigEndian.Uint64(id[:]) > between {
				hosts++
				return
			}
			count++
			got[binary.BigEndian.Uint64(id[:])] = s
			own, ok := s.Attributes().Get("gpu.self_energy")
			if ok {
				self += own.Double()
			} else {
				self += number(s, "gpu.energy")
			}
		})
	}
	require.Equal(t, len(x.spans), count, "each span once")
	for i := range x.spans {
		if x.spans[i].through {
			hosts--
		}
	}
	require.GreaterOrEqual(t, hosts, 0, "none is lost")
	require.LessOrEqual(t, hosts, x.regrouped, "what is repeated in another request may come again")
	want, all, device, withheld, hidden := 0., 0., 0., 0., 0.
	for i := range x.spans {
		s := &x.spans[i]
		if !s.gpu() {
			if s.id%8 != 5 || s.unknown {
				require.NotContains(t, got[s.id].Attributes().AsRaw(), "gpu.energy", "span %d", s.id)
			}
			continue
		}
		all += s.energy
		if !x.measured(i) {
			require.NotContains(t, got[s.id].Attributes().AsRaw(), "gpu.energy", "span %d", s.id)
			continue
		}
		if _, ok := got[s.id].Attributes().Get("gpu.energy"); !ok && x.inclusive(i) > 0 {
			withheld += s.energy // its error exceeds its energy
			hidden += x.inclusive(i)
			continue
		}
		require.InDelta(t, x.inclusive(i), number(got[s.id], "gpu.energy"), 1e-6, "span %d", s.id)
		want += s.energy
		if x.after(i) {
			hidden += s.energy
		}
	}
	for _, flow := range x.joules {
		for _, j := range flow {
			device += j
		}
	}
	require.InDelta(t, want, self, 1e-6)
	require.InDelta(t, withheld, counter(t, tel, "otelcol_processor_gpu_join_withheld_energy", ""), 1e-6)
	join := func(state string) float64 { return counter(t, tel, "otelcol_processor_gpu_join_energy", state) }
	require.InDelta(t, all, join("attributed")+join("late"), 1e-6)
	require.InDelta(t, device, join("attributed")+join("unattributed"), 1e-6, "late energy was unattributed before")

	// The metrics equal the sums over the spans.
	sums := map[string]float64{}
	add := func(all []pmetric.Metrics) {
		series := map[string]float64{}
		for _, md := range all {
			for _, rm := range md.ResourceMetrics().All() {
				for _, sm := range rm.ScopeMetrics().All() {
					for _, m := range sm.Metrics().All() {
						key := func(a pcommon.Map) string {
							return m.Name() + fmt.Sprint(rm.Resource().Attributes().AsRaw(), a.AsRaw())
						}
						switch m.Type() {
						case pmetric.MetricTypeSum:
							for _, p := range m.Sum().DataPoints().All() {
								v := p.DoubleValue()
								if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
									v = float64(p.IntValue())
								}
								require.GreaterOrEqual(t, v, series[key(p.Attributes())], "%s is cumulative", m.Name())
								sums[m.Name()] += v - series[key(p.Attributes())]
								series[key(p.Attributes())] = v
							}
						case pmetric.MetricTypeHistogram:
							for _, p := range m.Histogram().DataPoints().All() {
								sums[m.Name()] += p.Sum() - series[key(p.Attributes())]
								series[key(p.Attributes())] = p.Sum()
							}
						}
					}
				}
			}
		}
	}
	add(operations)
	add(requests)
	require.InDelta(t, want, sums["gpu.operation.energy"], 1e-6)
	served := 0
	for i := range x.spans {
		if x.spans[i].served {
			served++
		}
	}
	require.InDelta(t, float64(len(x.spans)-served), sums["gpu.operation.count"], 0)

	// The energy of the requests plus the unattributed energy equals the energy of the spans.
	of := 0.
	for _, td := range accounts {
		each(td, func(s ptrace.Span) {
			if s.Name() != "queue" {
				of += number(s, "gpu.energy")
			}
		})
	}
	charged := counter(t, tel, "otelcol_connector_gpu_requests_energy", "")
	require.InDelta(t, charged, sums["gpu.request.energy"], 1e-6)
	if served == 0 { // other traces show their own energy
		require.InDelta(t, charged, of, 1e-6)
	}
	if !x.ordered() {
		return
	}
	x.charged++
	// A span without energy can be in the energy of the span around it, and hide the energy of the
	// spans inside. One that arrives after the span around it counts as part of it.
	sum := charged + counter(t, tel, "otelcol_connector_gpu_requests_unassigned_energy", "")
	require.InDelta(t, want, sum, hidden+1e-6)
	if !slices.ContainsFunc(x.spans, func(s made) bool { return len(s.links) > 0 }) {
		require.Zero(t, of)
	}
}
