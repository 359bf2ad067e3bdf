// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package series keeps the time series of a connector between two outputs and writes them as
// points. A cumulative series begins with a point of 0, without which its first increase is
// invisible (see package startpoint).
package series

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/lightstep/go-expohisto/structure"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/startpoint"
	"github.com/otelgpu/otelgpu/semconv"
)

// OverflowKey is the attribute of overflow series, as the OpenTelemetry metrics SDK specification
// defines it.
const OverflowKey = "otel.metric.overflow"

// Settings are shared by all series of a connector.
type Settings struct {
	Scope            string        // name of the instrumentation scope
	Instance         string        // collector.instance.id of every point
	Interval         time.Duration // between two outputs
	Delta            bool          // temporality; false is cumulative
	Exponential      int           // maximum number of buckets of a histogram; 0: histograms have explicit bounds
	CardinalityLimit int           // maximum number of series of a family
	MaxSeries        int           // maximum number of series of all families; 0: no limit
	MakeRoom         func()        // evicts inactive series when MaxSeries is reached; may be nil

	Kept int // series of all families

	begun []*Series       // by the last output, with a point of 0
	bare  map[string]bool // names of histograms whose points have no buckets
}

// Output prepares the next output of the families of all resources. It returns the names of the
// histograms that have no buckets from now on; see MaxBuckets.
func (st *Settings) Output(resources iter.Seq[[]Family]) (bare []string) {
	clear(st.begun)
	st.begun = st.begun[:0]
	if st.Exponential > 0 {
		return nil
	}
	before := st.bare
	st.bare = withoutBuckets(resources)
	for name := range st.bare {
		if !before[name] {
			bare = append(bare, name)
		}
	}
	slices.Sort(bare)
	return bare
}

// Send sends the last output; last: no further one follows. If the first points are refused, their
// series begin again with the next output.
func (st *Settings) Send(ctx context.Context, to *startpoint.Output, out pmetric.Metrics, last bool) error {
	began, err := to.Flush(ctx, out, len(st.begun) > 0, last && !st.Delta)
	if !began {
		for _, s := range st.begun {
			s.begun = false
		}
	}
	return err
}

func (st *Settings) newHistogram(bounds []float64) histogram {
	if st.Exponential > 0 {
		h := &exponentialHistogram{}
		h.Init(structure.NewConfig(structure.WithMaxSize(int32(st.Exponential))))
		return h
	}
	return &explicitHistogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// Form is the form of a metric.
type Form uint8

// Forms of metrics.
const (
	Count     Form = iota // monotonic sum of whole numbers
	Sum                   // monotonic sum of doubles
	Histogram             // distribution
	Gauge                 // quotient of sums since the last output; written only when there were any
)

// Family is the series of one metric under one resource.
type Family struct {
	Name      string // unit and description are the registry's
	Form      Form
	Bounds    []float64 // of an explicit histogram
	Exemplars int       // maximum number per point

	byKey    map[string]*Series
	list     []*Series // in order of creation
	overflow *Series   // also in list
}

// Get returns the series with these attributes. It creates the series if there is none, or returns
// the overflow series if there are too many. start is the time from which a new series counts, unix
// ns. Get only reads attrs, but sorts its names; the maps of one family must have one order.
func (f *Family) Get(st *Settings, attrs pcommon.Map, start uint64) *Series {
	key := canonical(attrs)
	if s := f.byKey[key]; s != nil {
		return s
	}
	// One of the limit's series is the overflow, as in the SDKs.
	full := func() bool {
		return len(f.byKey) >= st.CardinalityLimit-1 || st.MaxSeries > 0 && st.Kept >= st.MaxSeries
	}
	if full() && st.MakeRoom != nil {
		st.MakeRoom()
	}
	if full() {
		if f.overflow == nil {
			none := pcommon.NewMap()
			none.PutBool(OverflowKey, true)
			f.overflow = f.append(st, none, start)
		}
		return f.overflow
	}
	s := f.append(st, attrs, start)
	if f.byKey == nil {
		f.byKey = make(map[string]*Series)
	}
	f.byKey[key] = s
	return s
}

func (f *Family) append(st *Settings, attrs pcommon.Map, start uint64) *Series {
	s := &Series{attrs: pcommon.NewMap(), start: start}
	attrs.CopyTo(s.attrs)
	s.attrs.PutStr(string(semconv.CollectorInstanceIDKey), st.Instance)
	if f.Form == Histogram {
		s.distribution = newDistribution(st.newHistogram(f.Bounds))
	}
	if f.Exemplars > 0 {
		s.exemplars = make([]exemplar, 0, f.Exemplars)
	}
	f.list = append(f.list, s)
	st.Kept++
	return s
}

// Len returns the number of series.
func (f *Family) Len() int { return len(f.list) }

// Overflowed reports whether a series is the overflow series of the family.
func (f *Family) Overflowed(s *Series) bool { return s == f.overflow }

// Expire evicts the series that were last seen before a time and returns their number.
func (f *Family) Expire(st *Settings, before int64) int {
	n := len(f.list)
	f.list = slices.DeleteFunc(f.list, func(s *Series) bool {
		s.gone = s.seen < before && !s.changed
		if s.gone && s == f.overflow {
			f.overflow = nil
		}
		return s.gone
	})
	if len(f.list) < n {
		for k, s := range f.byKey {
			if s.gone {
				delete(f.byKey, k)
			}
		}
	}
	st.Kept -= n - len(f.list)
	return n - len(f.list)
}

// earliest returns the earliest time of the next points after points at the time written: a changed
// series is never at the time of its last point, and a new series needs room for its point of 0.
func (f *Family) earliest(st *Settings, written uint64) uint64 {
	t := written
	for _, s := range f.list {
		if st.begins(s, f.Form) {
			return Next(Next(written))
		}
		if s.changed {
			t = Next(written)
		}
	}
	return t
}

// begins reports whether the next point of a series is 0.
func (st *Settings) begins(s *Series, f Form) bool { return !s.begun && f != Gauge && !st.Delta }

// pointTime has the times of the points of a resource, unix ns.
type pointTime struct {
	at     uint64
	before uint64 // of the previous points; 0: none
}

// Write adds the points of a resource's families, if there are any, and reports whether there were.
// Their time is the first one from at on that may follow written, the time of the previous points
// (0: none); Write returns it. instance is the service.instance.id to add to attrs; empty: none.
func (st *Settings) Write(
	out pmetric.Metrics, attrs pcommon.Map, instance string, families []Family, at, written uint64,
) (time uint64, wrote bool) {
	if written > 0 {
		for i := range families {
			at = max(at, families[i].earliest(st, written))
		}
	}
	rm := pmetric.NewResourceMetrics()
	sm := rm.ScopeMetrics().AppendEmpty()
	for i := range families {
		families[i].write(st, sm.Metrics(), pointTime{at, written})
	}
	if sm.Metrics().Len() == 0 {
		return at, false
	}
	// The scope has no version, and the schema URL is set on the resource only: both would be
	// labels of each series in Prometheus, so that a release would rename all of them.
	sm.Scope().SetName(st.Scope)
	rm.SetSchemaUrl(semconv.SchemaURL)
	attrs.CopyTo(rm.Resource().Attributes())
	sharedcomponent.PutText(rm.Resource().Attributes(), semconv.ServiceInstanceIDKey, instance)
	rm.MoveTo(out.ResourceMetrics().AppendEmpty())
	return at, true
}

// write adds the metric, if it has points.
func (f *Family) write(st *Settings, out pmetric.MetricSlice, ts pointTime) {
	if len(f.list) == 0 {
		return
	}
	temporality := pmetric.AggregationTemporalityCumulative
	if st.Delta {
		temporality = pmetric.AggregationTemporalityDelta
	}
	m := pmetric.NewMetric()
	registered, _ := semconv.LookupMetric(f.Name)
	m.SetName(f.Name)
	m.SetUnit(registered.Unit)
	m.SetDescription(registered.Description())
	switch {
	case f.Form == Gauge:
		m.SetEmptyGauge()
	case f.Form != Histogram:
		m.SetEmptySum().SetIsMonotonic(true)
		m.Sum().SetAggregationTemporality(temporality)
	case st.Exponential > 0:
		m.SetEmptyExponentialHistogram().SetAggregationTemporality(temporality)
	default:
		m.SetEmptyHistogram().SetAggregationTemporality(temporality)
	}
	some := false
	for _, s := range f.list {
		some = s.write(st, m, f, ts) || some
	}
	if some {
		m.MoveTo(out.AppendEmpty())
	}
}

// canonical returns a text that is equal for maps with equal names and values. Names are in the
// order in which they were put, because one function makes all maps of a family.
func canonical(attrs pcommon.Map) string {
	var b []byte
	for k, v := range attrs.All() {
		b = append(b, k...)
		b = append(b, 0)
		b = append(b, v.AsString()...)
		b = append(b, 0)
	}
	return string(b)
}
