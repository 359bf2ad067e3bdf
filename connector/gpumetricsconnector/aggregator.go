// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// dims are the dimensions of an operation's metrics.
type dims struct {
	name, kind, category                  string
	id, status                            string
	direction, precision, itemType, extra string
}

// facts are the values of a span, and the other values that the metrics need.
type facts struct {
	spanfacts.Facts
	extra string // values of Config.Dimensions
	state string // of steps only, like flags
	flags uint32
}

// load fills f from a span of a scope; it reports whether the span is GPU work, or a request that
// may have energy.
func (f *facts) load(s ptrace.Span, scope *spanfacts.Scope) bool {
	if !f.Load(s, scope) || !f.Kind.Work() && f.Kind != spanfacts.Request {
		return false
	}
	f.Device.ID = spanfacts.Clip(f.Device.ID) // longer if it lists several devices
	if f.Kind == spanfacts.Step {
		f.state, f.flags = spanfacts.TraceState(s.TraceState()), s.Flags()
	}
	return true
}

func (f *facts) dims() dims {
	return dims{
		name: f.Name, kind: f.Type, category: f.Category, id: f.Device.ID, status: f.Status,
		direction: f.Direction, precision: f.Precision, itemType: f.ItemType, extra: f.extra,
	}
}

// collective reports whether the span is communication between devices.
func (f *facts) collective() bool {
	return f.Kind == spanfacts.Collective || f.Category == semconv.GPUOperationCategoryComm
}

// future is how far the end of a span may be ahead of the clock and still set the time of points.
const future = time.Minute

// latest returns the latest plausible time of a span, unix ns.
func (a *aggregator) latest() uint64 { return uint64(a.now + a.ahead + int64(future)) }

// settings are shared by all resources.
type settings struct {
	series.Settings
	cfg        *Config
	bounds     []float64 // s
	operations int       // of all resources; only the kept ones
	since      uint64    // when the connector was made, unix ns
}

// aggregator is the state behind the connector's lock.
type aggregator struct {
	settings
	resources map[string]*resource
	gone      map[string]uint64 // evicted resources, with the times of their last points
	jobs      *stragglers       // nil: off

	activities int    // waiting, over all devices
	edges      []edge // scratch memory of their timelines
	repeats    spanfacts.Repeats
	targets    series.Targets
	now        int64    // of the current batch or output, by a series.Clock
	ahead      int64    // of the host's clock, ns: by how much it was set forward since the start
	taken      int64    // time of the last output that the next component accepted
	swept      int64    // time of the last eviction
	bare       []string // metrics that lost their buckets and were not logged yet

	stats counts
}

// counts are for the connector's own telemetry, since they were last read.
type counts struct {
	spans, repeated, overflow, evicted        int64
	activityLate, activityLimit, activityTime int64
	stepLate, stepLimit                       int64
	uncompared                                [aloneReasons]int64
	few                                       [2]int64 // ranks that report a step, of how many; 0: not known
}

// alone counts steps of ranks that are compared with no other.
func (c *counts) alone(why aloneReason, n int) { c.uncompared[why] += int64(n) }

func newAggregator(cfg *Config, instance string) *aggregator {
	a := &aggregator{
		settings: settings{cfg: cfg, Settings: series.Settings{
			Scope: metadata.ScopeName, Instance: instance, Interval: cfg.FlushInterval,
			Delta: cfg.Temporality == TemporalityDelta, CardinalityLimit: cfg.CardinalityLimit, MaxSeries: cfg.MaxSeries,
		}},
		resources: make(map[string]*resource),
		gone:      make(map[string]uint64),
		repeats:   spanfacts.Repeats{Max: cfg.MaxSpans},
		targets:   series.Targets{Kept: cfg.ResourceAttributes},
	}
	a.MakeRoom = a.sweep
	if e := cfg.Histogram.Exponential.Get(); e != nil {
		a.Exponential = e.MaxSize
	}
	for _, b := range cfg.Histogram.Explicit {
		a.bounds = append(a.bounds, b.Seconds())
	}
	if s := cfg.Stragglers.Get(); s != nil {
		a.jobs = newStragglers(*s)
	}
	return a
}

// take adds a batch. now is the time by a series.Clock, here and below.
func (a *aggregator) take(td ptrace.Traces, now int64) {
	a.now = now
	var res spanfacts.Resource
	var scope spanfacts.Scope
	for _, rs := range td.ResourceSpans().All() {
		res.Load(rs.Resource().Attributes())
		var r *resource // made for the first GPU span
		if a.jobs != nil {
			a.jobs.read(rs.Resource().Attributes(), &res)
		}
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(&res, ss.Scope().Attributes())
			var f facts
			for _, s := range ss.Spans().All() {
				if !f.load(s, &scope) {
					if a.jobs != nil {
						a.jobs.host(&f)
					}
					continue
				}
				if a.repeats.Again(&f.Facts) {
					a.stats.repeated++
					continue
				}
				if r == nil {
					r = a.resource(rs.Resource().Attributes(), &res)
				}
				if len(a.cfg.Dimensions) > 0 {
					f.extra = a.extra(s.Attributes(), rs.Resource().Attributes())
				}
				weight, _ := spanfacts.AdjustedCount(s.TraceState().AsRaw())
				a.span(r, &f, weight, scope.MetricsEmitted, now)
			}
		}
	}
	if a.jobs != nil {
		a.jobs.source, a.jobs.bounded = pcommon.Map{}, pcommon.Map{}
		a.jobs.tree.settle()
	}
}

// resource finds or creates the resource of a batch's spans. If there are too many, the spans count
// as spans of an empty resource.
func (a *aggregator) resource(attrs pcommon.Map, of *spanfacts.Resource) *resource {
	key := a.targets.Key(attrs)
	r := a.resources[string(key)]
	if r == nil && len(a.resources) >= a.cfg.MaxResources {
		a.sweep()
		if len(a.resources) >= a.cfg.MaxResources {
			key, attrs, of = nil, pcommon.NewMap(), &spanfacts.Resource{Rank: -1, WorldSize: -1}
			r = a.resources[""]
		}
	}
	if r == nil {
		kept, instance := a.targets.Attributes(attrs)
		r = newResource(kept, &a.settings)
		r.instance = instance
		r.written = a.gone[string(key)] // its series begin after their last points
		delete(a.gone, string(key))
		a.resources[string(key)] = r
	}
	r.identify(of)
	return r
}

// extra joins the values of the configured dimensions; a span's own value overrides its resource's.
func (a *aggregator) extra(span, resource pcommon.Map) string {
	var b strings.Builder
	for i, k := range a.cfg.Dimensions {
		if i > 0 {
			b.WriteString(extraSeparator)
		}
		v, ok := span.Get(k)
		if !ok {
			v, ok = resource.Get(k)
		}
		if ok {
			b.WriteString(strings.ReplaceAll(spanfacts.Clip(v.AsString()), extraSeparator, ""))
		}
	}
	return b.String()
}

func (a *aggregator) span(r *resource, f *facts, weight float64, emitted bool, now int64) {
	a.stats.spans++
	a.saw(r, f.End)
	step, request := f.Kind == spanfacts.Step, f.Kind == spanfacts.Request
	over := false
	if a.cfg.Operations.HasValue() {
		over = a.operation(r, f, weight, emitted || step || request, now) // of a step only the energy outside of operations
	}
	if step && a.cfg.Steps.HasValue() {
		over = a.step(r, f, weight, now) || over
	}
	if over {
		a.stats.overflow++
	}
	if step {
		if a.jobs != nil {
			a.jobs.step(r, f, now, &a.stats)
		}
		return
	}
	if request {
		return
	}
	a.activity(r, f, weight, now)
	if a.jobs != nil {
		a.jobs.section(r, f)
	}
}

// saw records that a span of a resource arrived, and its end.
func (a *aggregator) saw(r *resource, end uint64) {
	r.seen = a.now
	if end > r.newest && end <= a.latest() {
		r.newest, r.lag = end, a.now+a.ahead-int64(end)
	}
}

// onlyStragglers turns off everything that only metrics report, if no metrics pipeline is
// connected.
func (a *aggregator) onlyStragglers() {
	cfg := *a.cfg
	cfg.Operations = configoptional.None[OperationsConfig]()
	cfg.Steps = configoptional.None[StepsConfig]()
	cfg.Activity = configoptional.None[ActivityConfig]()
	a.cfg = &cfg
}

// findings returns the ranks that stood out since the last call.
func (a *aggregator) findings() (found []*reported) {
	if a.jobs != nil {
		found, a.jobs.found = a.jobs.found, nil
	}
	return found
}

// output makes the points of all resources. final: no more spans will arrive.
func (a *aggregator) output(now int64, final bool) pmetric.Metrics {
	a.now = now
	out := pmetric.NewMetrics()
	for _, r := range a.resources {
		a.settleActivity(r, now, final)
	}
	if a.jobs != nil {
		a.compare(now, final)
	}
	a.bare = append(a.bare, a.Output(func(yield func([]series.Family) bool) {
		for _, r := range a.resources {
			if !yield(r.families[:]) {
				return
			}
		}
	})...)
	for _, r := range a.resources {
		r.write(&a.settings, out, now+a.ahead)
	}
	return out
}

// sweep evicts the series and resources that were inactive for `expiry`, at most once in each flush
// interval. It keeps series with points that the next component has not accepted.
func (a *aggregator) sweep() {
	if a.cfg.Expiry == 0 || a.now-a.swept < int64(a.cfg.FlushInterval) {
		return
	}
	a.swept = a.now
	before := min(a.now-int64(a.cfg.Expiry), a.taken)
	for key, r := range a.resources {
		expired, empty := r.expire(&a.settings, before)
		a.stats.evicted += int64(expired)
		if !empty {
			continue
		}
		a.operations -= len(r.operations.byDims)
		delete(a.resources, key)
		if len(a.gone) >= 4*a.cfg.MaxResources {
			clear(a.gone)
		}
		a.gone[key] = r.written
	}
}
