// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

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
	// Logger logs once of each server that its energy is unknown. Nil: nothing does.
	Logger *zap.Logger

	mu   sync.Mutex
	list []*Meter
}

// Source is what has meters.
type Source interface {
	// ServerMetrics appends the metrics of all servers at a time, in Unix nanoseconds.
	ServerMetrics(dst pmetric.MetricSlice, now int64)
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
	last    map[place]float64 // counters on the newest page of each line
	lines   map[group][]line
	newest  int64             // ID of a line
	seen    map[float64]bool  // processes by their start
	totals  map[total]float64 // increases of counters since the first page
	gauges  map[total]float64
	joules  map[string]*[numStates]float64 // by the only model
	ended   map[string]bool                // energy that does not increase any more, by model
	state   state                          // on the newest page
	states  []stretch                      // not counted yet, in the order of time
	through int64                          // energy is counted until then
	loads   loads
	shown   int64 // the newest page that was reported first at time fresh
	fresh   int64
	quiet   bool    // gauges have ended
	logged  bool    // that its energy is unknown
	pending float64 // J of the idle server that are counted as active; negative: the other way round

	restJoules, restSeconds float64 // of the idle server, in the last minutes
}

type place struct {
	q    Quantity
	key  string
	line int64
}

// group are the counters that one process, or several without a known start, have of one model.
type group struct {
	started         float64
	model, instance string
}

// line is what one process counts of a group, and when it was read last.
type line struct{ id, read int64 }

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
	// quietAfter is for how long a server without new pages has gauges, at least, and deadAfter
	// counters, as if it were read.
	quietAfter, deadAfter = int64(time.Minute), int64(15 * time.Minute)
	// maxRate is what a process can count per second when it has just started.
	maxRate = 1e4
	// alternates is how long a process on an address of several is remembered without an answer.
	alternates = int64(time.Minute)
)

// New returns the meter of another server.
func (m *Meters) New(id Identity) *Meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.blank(id)
	return &x
}

func (m *Meters) blank(id Identity) Meter {
	return Meter{
		all: m, id: id, last: map[place]float64{}, lines: map[group][]line{}, seen: map[float64]bool{},
		totals: map[total]float64{}, joules: map[string]*[numStates]float64{}, ended: map[string]bool{},
	}
}

// Ended reports whether the meter has nothing to report: it starts again with the next page.
func (x *Meter) Ended() bool {
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	return x.start == 0
}

// Add adds a page that was read at time t (Unix nanoseconds). Several processes may answer on one
// address. A process that started since the first page counts from 0, and so do counters of a
// process that fell, because their model was loaded again. If its start is unknown, counters that
// fell belong to a restarted process if it can have counted them since the last page, otherwise to
// another one, which has run for long.
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
		x.all.list = append(x.all.list, x)
	}
	x.name = p.Server
	if len(x.seen) >= maxSeries || len(x.last) >= maxSeries {
		x.seen = map[float64]bool{}
		for g := range x.lines {
			if g.started != p.Started {
				x.keep(g, math.MaxInt64)
			}
		}
	}
	other := !first && !x.seen[p.Started]
	restarted := other && int64(p.Started*1e9) >= x.start
	fromZero := !first && (!other || restarted)
	x.seen[p.Started] = true
	x.gauges = map[total]float64{}
	groups := map[group][]Value{}
	for _, v := range values {
		if v.Quantity >= Input {
			g := group{p.Started, v.Model, v.Instance}
			groups[g] = append(groups[g], v)
		}
	}
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
		case Waiting:
			x.gauges[to] += v.Value
		case KVCache:
			x.gauges[to] = max(x.gauges[to], v.Value)
		}
	}
	for g, counters := range groups {
		id, known, fell := x.lineOf(g, counters, t)
		restarted = restarted || fell
		tooMany := slices.ContainsFunc(counters, func(v Value) bool {
			return v.Quantity != BusyTime && v.Value > maxRate*float64(t-x.read)*1e-9
		})
		unsure := p.Started == 0 && (fell || g.instance != "") // which process the line belongs to
		// sinceZero: a new line's values were counted since the last page.
		sinceZero := fromZero && !(unsure && tooMany)
		for _, v := range counters {
			at, to := place{v.Quantity, v.Key, id}, total{v.Quantity, v.Model}
			more := v.Value
			before, ok := x.last[at]
			switch {
			case !ok && len(x.last) >= maxSeries:
				continue
			case ok:
				more -= before
			case !known && !sinceZero:
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
	}
	x.extend(now, running, t, restarted, did)
	if !first {
		x.every = t - x.read
	}
	x.read = t
}

// lineOf returns which process counted these values: the one that had to count least to reach them
// since its last answer. If there is none, it is another line, and it fell if there are others.
func (x *Meter) lineOf(g group, values []Value, t int64) (id int64, known, fell bool) {
	newest := int64(0)
	for _, l := range x.lines[g] {
		newest = max(newest, l.read)
	}
	lines := x.keep(g, newest-alternates)
	best, least := -1, math.Inf(1)
	for i, l := range lines {
		more := 0.
		for _, v := range values {
			before, ok := x.last[place{v.Quantity, v.Key, l.id}]
			switch {
			case ok && v.Value < before:
				more = math.Inf(1)
			case ok:
				more += v.Value - before
			}
		}
		if more < least {
			best, least = i, more
		}
	}
	if best >= 0 {
		lines[best].read = t
		return lines[best].id, true, false
	}
	x.newest++
	x.lines[g] = append(lines, line{x.newest, t})
	return x.newest, false, len(lines) > 0
}

// keep forgets the lines of a group that were read before a time, and returns the others.
func (x *Meter) keep(g group, since int64) []line {
	lines := slices.DeleteFunc(x.lines[g], func(l line) bool {
		if l.read >= since {
			return false
		}
		maps.DeleteFunc(x.last, func(at place, _ float64) bool { return at.line == l.id })
		return true
	})
	if x.lines[g] = lines; len(lines) == 0 {
		delete(x.lines, g)
	}
	return lines
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

// Append appends the metrics of all servers at time now. Series of a server without new pages end:
// gauges first, because a load that is not read any more is unknown.
func (m *Meters) Append(dst pmetric.MetricSlice, now int64) {
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
	set := func(p pmetric.NumberDataPoint, v float64, ended bool) {
		if ended {
			p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		} else {
			p.SetDoubleValue(v)
		}
	}
	m.list = slices.DeleteFunc(m.list, func(x *Meter) bool {
		if x.read != x.shown {
			x.shown, x.fresh, x.quiet = x.read, now, false
		}
		silent := now - x.fresh
		quiet, dead := silent > max(quietAfter, silentPages*x.every), silent > max(deadAfter, silentPages*x.every)
		only := x.model()
		for _, model := range slices.Sorted(maps.Keys(x.joules)) {
			// The energy of a model that is no longer alone ends after its last increase: at 0 W it
			// would seem to produce tokens without energy.
			ended := dead || model != only && x.ended[model]
			x.ended[model] = model != only
			for s, j := range x.joules[model] {
				if state(s) == unknown && j == 0 {
					continue
				}
				p := x.point(of(semconv.GPUServerEnergyName), model, x.through, true)
				set(p, j, ended)
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
				counter := at.q >= Input
				name := metricOf[at.q]
				if name == "" || !counter && x.quiet {
					continue
				}
				p := x.point(of(name), at.model, x.read, counter)
				if kind, ok := kindOf[at.q]; ok {
					p.Attributes().PutStr(string(kind.Key), kind.Value.AsString())
				}
				set(p, values[at], dead || quiet && !counter)
			}
		}
		if x.quiet = quiet; dead {
			*x = m.blank(x.id)
		}
		return dead
	})
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
