// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"cmp"
	"maps"
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
	// PID returns the server's process, or 0. It is called until it is known, and again if the
	// process has no device. Nil: Workload has it.
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
	start   int64             // of the first page, Unix ns
	read    int64             // of the newest one
	every   int64             // ns between the newest two
	last    map[place]float64 // counters on the newest page of each process
	seen    map[float64]bool  // processes by their start
	totals  map[total]float64 // increases of counters since the first page
	gauges  map[total]float64
	joules  map[string]*[numStates]float64 // by the only model
	ended   map[string]bool                // energy that does not increase any more, by model
	state   state                          // on the newest page
	states  []stretch                      // not counted yet, in the order of time
	through int64                          // energy is counted until then
	loads   loads
	pending float64 // J of the idle server that are counted as active; negative: the other way round

	restJoules, restSeconds float64 // of the idle server, in the last minutes
}

type place struct {
	q       Quantity
	key     string
	started float64
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
	absent = numStates // it was restarted, or has stopped
)

// stretch is a time in which the state is the same.
type stretch struct {
	to    int64
	state state
	share float64 // of its time in which requests ran; certain: by the state
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
	x := &Meter{
		all: m, id: id, last: map[place]float64{}, seen: map[float64]bool{}, totals: map[total]float64{},
		joules: map[string]*[numStates]float64{}, ended: map[string]bool{},
	}
	m.list = append(m.list, x)
	return x
}

// Add adds a page that was read at time t (Unix nanoseconds). A counter that decreased, or of a
// process that started since, counts from 0. Several processes may answer on one address.
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
	other := !first && !x.seen[p.Started]
	restarted := other && int64(p.Started*1e9) >= x.start
	if len(x.seen) >= maxSeries || len(x.last) >= maxSeries {
		x.seen = map[float64]bool{}
		maps.DeleteFunc(x.last, func(at place, _ float64) bool { return at.started != p.Started })
	}
	x.seen[p.Started] = true
	x.gauges = map[total]float64{}
	fell := map[string]bool{} // models of which a counter did: all of them count from 0
	for _, v := range values {
		if v.Quantity >= Input && x.last[place{v.Quantity, v.Key, p.Started}] > v.Value {
			fell[v.Model] = true
		}
	}
	restarted = restarted || len(fell) > 0
	running, did := 0., progress{}
	for _, v := range values {
		to := total{v.Quantity, v.Model}
		switch v.Quantity {
		case Running:
			if now = max(now, idle); v.Value > 0 {
				now = active
			}
			running += v.Value
			x.gauges[to] += v.Value
			continue
		case Waiting:
			x.gauges[to] += v.Value
			continue
		case KVCache:
			x.gauges[to] = max(x.gauges[to], v.Value)
			continue
		}
		at := place{v.Quantity, v.Key, p.Started}
		more := v.Value
		before, ok := x.last[at]
		switch {
		case !ok && len(x.last) >= maxSeries:
			continue
		case ok && !fell[v.Model]:
			more -= before
		case first || other && !restarted:
			more = 0
		}
		x.last[at] = v.Value
		if _, ok := x.totals[to]; ok || len(x.totals) < maxTotals {
			x.totals[to] += more
		}
		did.moved = did.moved || more > 0
		switch v.Quantity {
		case Prefill, Decode:
			did.timed = true
			did.busy += more
		case Requests:
			did.ended += more
		}
	}
	x.extend(now, running, t, restarted, did)
	if !first {
		x.every = t - x.read
	}
	x.read = t
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
		only := x.model()
		for _, model := range slices.Sorted(maps.Keys(x.joules)) {
			// The energy of a model that is no longer alone ends after its last increase: at 0 W it
			// would seem to produce tokens without energy.
			ended := model != only && x.ended[model]
			x.ended[model] = model != only
			for s, j := range x.joules[model] {
				if state(s) == unknown && j == 0 {
					continue
				}
				p := x.point(of(semconv.GPUServerEnergyName), model, x.through, true)
				if ended {
					p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
				} else {
					p.SetDoubleValue(j)
				}
				switch state(s) {
				case idle:
					p.Attributes().PutStr(string(semconv.GPUServerStateKey), semconv.GPUServerStateIdle)
				case active:
					p.Attributes().PutStr(string(semconv.GPUServerStateKey), semconv.GPUServerStateActive)
				}
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
