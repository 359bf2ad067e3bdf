// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

// Identity is which server a meter follows.
type Identity struct {
	Address   string // host and port of its metrics
	Namespace string // of its pod
	Pod       string
	Devices   []string // hw.id of the devices that it uses; empty: found by Workload
	// Workload finds the devices by the server's process or pod.
	Workload devicesamples.Workload
	// PID returns the server's process, or 0. It is called until it is known, and again if the process
	// has no device. Nil: Workload has it.
	PID func() int64
}

// Meters follow servers: tokens by their counters, and the energy of their devices while they run
// requests and while they do not. The zero value is ready to use; all methods are safe for
// concurrent use.
type Meters struct {
	mu   sync.Mutex
	list []*Meter
}

// Source is what has meters.
type Source interface {
	// ServerMetrics appends the metrics of all servers.
	ServerMetrics(dst pmetric.MetricSlice)
}

// Meter follows one server.
type Meter struct {
	all *Meters
	id  Identity

	// Guarded by all.mu.
	name    string
	start   int64 // of the first page, Unix ns
	read    int64 // of the newest one
	started float64
	last    map[place]float64 // counters on the newest page
	totals  map[total]float64 // increases of counters since the first page
	gauges  map[total]float64
	joules  [numStates]float64
	states  []stretch // not counted yet, in the order of time
	through int64     // energy is counted until then
}

type place struct {
	q   Quantity
	key string
}

type total struct {
	q     Quantity
	model string
}

// state is whether a server runs requests.
type state uint8

const (
	unknown state = iota // it does not report it
	idle
	active
	numStates
)

// stretch is a time in which the state is the same.
type stretch struct {
	to    int64
	state state
}

const (
	// maxStretches bounds the stretches of a server that wait for samples: a quarter of an hour.
	maxStretches = 1 << 11
	// maxTotals bounds the models of a server.
	maxTotals = 1 << 10
)

// New returns the meter of another server.
func (m *Meters) New(id Identity) *Meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := &Meter{all: m, id: id, last: map[place]float64{}, totals: map[total]float64{}}
	m.list = append(m.list, x)
	return x
}

// Add adds a page that was read at time t (Unix nanoseconds). A counter that decreased, or a process
// with another start time, counts from 0.
func (x *Meter) Add(p *Page, t int64) {
	values := p.Values()
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	if len(values) == 0 || t <= x.read {
		return
	}
	now := unknown
	first := x.start == 0
	if first {
		x.start, x.through = t, t
	}
	x.name = p.Server
	restarted := p.Started > x.started && x.started > 0
	x.started = max(x.started, p.Started)
	x.gauges = map[total]float64{}
	for _, v := range values {
		to := total{v.Quantity, v.Model}
		switch v.Quantity {
		case Running:
			if now = max(now, idle); v.Value > 0 {
				now = active
			}
			x.gauges[to] += v.Value
			continue
		case Waiting:
			x.gauges[to] += v.Value
			continue
		case KVCache:
			x.gauges[to] = max(x.gauges[to], v.Value)
			continue
		}
		at := place{v.Quantity, v.Key}
		more := v.Value
		before, ok := x.last[at]
		switch {
		case !ok && len(x.last) >= maxSeries:
			continue
		case ok && !restarted && before <= v.Value:
			more -= before
		case first:
			more = 0
		}
		x.last[at] = v.Value
		if _, ok := x.totals[to]; ok || len(x.totals) < maxTotals {
			x.totals[to] += more
		}
	}
	x.extend(now, t)
	x.read = t
}

// extend adds the time since the last page: its first half has the earlier state.
func (x *Meter) extend(now state, t int64) {
	if n := len(x.states); n > 0 && x.read > 0 {
		before := x.states[n-1].state
		x.states[n-1].to = x.read + (t-x.read)/2
		if before == now {
			x.states[n-1].to = t
			return
		}
	}
	if len(x.states) == maxStretches {
		x.states = slices.Delete(x.states, 0, 1)
	}
	x.states = append(x.states, stretch{t, now})
}

// stateAt returns the state at a time that is not before the first stretch, and until when it lasts.
func (x *Meter) stateAt(t int64) (state, int64) {
	for _, s := range x.states {
		if t < s.to {
			return s.state, s.to
		}
	}
	return unknown, math.MaxInt64
}

// Measure counts the energy of the servers' devices up to the newest samples.
func (m *Meters) Measure(view devicesamples.View, uses devicesamples.UseReader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	users := map[string][]*Meter{} // by device
	devices := map[*Meter][]devicesamples.DeviceView{}
	for _, x := range m.list {
		if x.start == 0 {
			continue
		}
		ids := x.id.Devices
		if len(ids) == 0 {
			if x.id.PID != nil && x.id.Workload.PID == 0 {
				x.id.Workload.PID = x.id.PID()
			}
			if ids, _ = uses.DevicesOf(nil, &x.id.Workload, x.through, x.read); len(ids) == 0 && x.id.PID != nil {
				x.id.Workload.PID = 0
			}
		}
		for _, id := range ids {
			if dev, ok := view.Lookup(id); ok && dev.Device().Parent == "" {
				devices[x] = append(devices[x], dev)
				users[dev.Device().ID] = append(users[dev.Device().ID], x)
			}
		}
		if len(devices[x]) < len(ids) || len(ids) == 0 {
			delete(devices, x) // a part of its energy would be taken for the whole
		}
	}
	spent := map[*Meter][numStates]float64{}
	until := map[*Meter]int64{}
	for x, list := range devices {
		to := x.read
		for _, dev := range list {
			to = min(to, dev.Newest())
		}
		until[x] = to
		joules := spent[x]
		for at := x.through; at < to; {
			s, end := x.stateAt(at)
			end = min(end, to)
			for _, u := range users { // another server's change of state changes the parts
				for _, other := range u {
					if _, e := other.stateAt(at); e > at {
						end = min(end, e)
					}
				}
			}
			for _, dev := range list {
				joules[s] += energyOf(dev, at, end) * x.part(users[dev.Device().ID], at)
			}
			at = end
		}
		spent[x] = joules
	}
	for x, joules := range spent {
		for s, j := range joules {
			x.joules[s] += j
		}
		x.through = max(x.through, until[x])
	}
	for _, x := range m.list {
		oldest := x.through
		for _, other := range m.list {
			if other.start > 0 {
				oldest = min(oldest, other.through)
			}
		}
		for len(x.states) > 1 && x.states[0].to <= oldest {
			x.states = x.states[1:]
		}
	}
}

// part returns the part of a device's energy at a time that is a server's: equal parts for all that
// run requests, otherwise of all.
func (x *Meter) part(users []*Meter, at int64) float64 {
	running := 0
	for _, u := range users {
		if s, _ := u.stateAt(at); s != idle {
			running++
		}
	}
	s, _ := x.stateAt(at)
	switch {
	case running == 0:
		return 1 / float64(len(users))
	case s == idle:
		return 0
	}
	return 1 / float64(running)
}

// energyOf returns the energy of a device in joules.
func energyOf(dev devicesamples.DeviceView, from, to int64) float64 {
	watts, known := dev.Mean(devicesamples.Energy, from, to)
	if known == 0 {
		watts, known = dev.Mean(devicesamples.Power, from, to)
	}
	return watts * known * float64(to-from) * 1e-9
}

// metricOf are the metrics of the quantities.
var metricOf = map[Quantity]string{
	Running: semconv.GPUServerRunningName, Waiting: semconv.GPUServerWaitingName,
	KVCache: semconv.GPUServerKvCacheUtilizationName, Input: semconv.GPUServerTokensName,
	Cached: semconv.GPUServerTokensName, Output: semconv.GPUServerTokensName,
	Requests: semconv.GPUServerRequestsName, Preempted: semconv.GPUServerPreemptionsName,
	Prefill: semconv.GPUServerPhaseDurationName, Decode: semconv.GPUServerPhaseDurationName,
}

// kindOf are the attributes of quantities that share a metric.
var kindOf = map[Quantity]attribute.KeyValue{
	Input:   semconv.GenAITokenTypeKey.String(semconv.GenAITokenTypeInput),
	Cached:  semconv.GenAITokenTypeKey.String(semconv.GenAITokenTypeCached),
	Output:  semconv.GenAITokenTypeKey.String(semconv.GenAITokenTypeOutput),
	Prefill: semconv.GPUServerPhaseKey.String(semconv.GPUServerPhasePrefill),
	Decode:  semconv.GPUServerPhaseKey.String(semconv.GPUServerPhaseDecode),
}

// Append appends the metrics of all servers.
func (m *Meters) Append(dst pmetric.MetricSlice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	points := map[string]pmetric.NumberDataPointSlice{}
	of := func(name string) pmetric.NumberDataPointSlice {
		p, ok := points[name]
		if !ok {
			def, _ := semconv.LookupMetric(name)
			metric := dst.AppendEmpty()
			metric.SetName(name)
			metric.SetUnit(def.Unit)
			metric.SetDescription(def.Description())
			if def.Instrument == semconv.InstrumentGauge {
				p = metric.SetEmptyGauge().DataPoints()
			} else {
				sum := metric.SetEmptySum()
				sum.SetIsMonotonic(true)
				sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
				p = sum.DataPoints()
			}
			points[name] = p
		}
		return p
	}
	for _, x := range m.list {
		if x.start == 0 {
			continue
		}
		models := map[string]bool{}
		for at := range x.totals {
			models[at.model] = true
		}
		only := ""
		if len(models) == 1 {
			for only = range models {
			}
		}
		for s, j := range x.joules {
			if x.through == x.start || state(s) == unknown && j == 0 {
				continue
			}
			p := x.point(of(semconv.GPUServerEnergyName), only, x.through, true)
			p.SetDoubleValue(j)
			switch state(s) {
			case idle:
				p.Attributes().PutStr(string(semconv.GPUServerStateKey), semconv.GPUServerStateIdle)
			case active:
				p.Attributes().PutStr(string(semconv.GPUServerStateKey), semconv.GPUServerStateActive)
			}
		}
		for _, values := range []map[total]float64{x.totals, x.gauges} {
			for _, at := range slices.SortedFunc(maps.Keys(values), func(a, b total) int {
				return cmp.Or(cmp.Compare(a.q, b.q), cmp.Compare(a.model, b.model))
			}) {
				if name := metricOf[at.q]; name != "" {
					p := x.point(of(name), at.model, x.read, at.q >= Input)
					if kind, ok := kindOf[at.q]; ok {
						p.Attributes().PutStr(string(kind.Key), kind.Value.AsString())
					}
					p.SetDoubleValue(values[at])
				}
			}
		}
	}
}

func (x *Meter) point(to pmetric.NumberDataPointSlice, model string, t int64, counter bool) pmetric.NumberDataPoint {
	p := to.AppendEmpty()
	p.SetTimestamp(pcommon.Timestamp(t))
	if counter {
		p.SetStartTimestamp(pcommon.Timestamp(x.start))
	}
	put := func(key, value string) {
		if value != "" {
			p.Attributes().PutStr(key, value)
		}
	}
	put(string(semconv.GPUServerNameKey), x.name)
	put(string(semconv.ServerAddressKey), x.id.Address)
	put(string(semconv.GenAIRequestModelKey), model)
	put(string(semconv.K8sNamespaceNameKey), x.id.Namespace)
	put(string(semconv.K8sPodNameKey), x.id.Pod)
	return p
}
