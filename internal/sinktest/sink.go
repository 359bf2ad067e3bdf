// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sinktest has consumers that treat data as the components of a Collector may: they share
// it, change it, reject it, or wait. It checks that a component in front of them loses, repeats and
// changes nothing.
package sinktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/pref"
)

// ErrRejected is the retryable error of a Sink.
var ErrRejected = errors.New("sending queue is full")

// changes marks what a Sink has changed.
const changes = "sinktest.changes"

// Sink consumes spans, metrics, logs and profiles and records the outcome of each item: a span by its
// ID, a data point by its metric, attributes and time.
type Sink struct {
	// Shares marks data as read-only, as a fan-out to several consumers does.
	Shares bool
	// Changes writes to all data before it is rejected or accepted, as processors do.
	Changes bool
	// Reject returns an error for an attempt to be rejected, nil for one to be accepted. Default:
	// all are accepted.
	Reject func() error
	// Wait is called first, with the context of the attempt; an error is returned to the component.
	Wait func(context.Context) error

	mu        sync.Mutex
	accepted  map[string]int
	last      map[string]string // accepted value of each time series that is not a gauge
	rejected  map[string]int
	contents  map[string][]string // different contents of an item
	twice     []string            // changed more than once
	permanent map[string]bool
}

// Randomly returns a function for Reject that rejects a share of attempts. The error is permanent
// with the probability permanent.
func Randomly(seed uint64, share, permanent float64) func() error {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() error {
		switch {
		case r.Float64() >= share:
			return nil
		case r.Float64() < permanent:
			return consumererror.NewPermanent(errors.New("too large"))
		}
		return ErrRejected
	}
}

// First returns a function for Reject that rejects the first n attempts.
func First(n int) func() error {
	return func() error {
		if n--; n >= 0 {
			return ErrRejected
		}
		return nil
	}
}

// Capabilities implements the consumers of all signals.
func (s *Sink) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: s.Changes}
}

// ConsumeTraces implements consumer.Traces.
func (s *Sink) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if pref.MarkPipelineOwnedTraces(td) { // as the service does between components
		defer pref.UnrefTraces(td)
	}
	return s.consume(ctx, td.MarkReadOnly, func(item func(string, string, pcommon.Map)) {
		for _, rs := range td.ResourceSpans().All() {
			resource := rs.Resource().Attributes()
			s.change("a resource", resource)
			for _, ss := range rs.ScopeSpans().All() {
				s.change("a scope", ss.Scope().Attributes())
				for _, sp := range ss.Spans().All() {
					attrs := sp.Attributes()
					item(sp.TraceID().String()+sp.SpanID().String(), fmt.Sprint(sp.Name(), sp.ParentSpanID(), sp.StartTimestamp(),
						sp.EndTimestamp(), sp.Events().Len(), without(resource), without(ss.Scope().Attributes()), without(attrs)), attrs)
				}
			}
		}
	})
}

// ConsumeMetrics implements consumer.Metrics.
func (s *Sink) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	if pref.MarkPipelineOwnedMetrics(md) {
		defer pref.UnrefMetrics(md)
	}
	values := map[string]string{}
	err := s.consume(ctx, md.MarkReadOnly, func(item func(string, string, pcommon.Map)) {
		for _, rm := range md.ResourceMetrics().All() {
			s.change("a resource", rm.Resource().Attributes())
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					point := func(at pcommon.Timestamp, value string, attrs pcommon.Map) {
						series := fmt.Sprint(m.Name(), without(rm.Resource().Attributes()), without(attrs))
						if m.Type() != pmetric.MetricTypeGauge {
							values[series] = value
						}
						item(fmt.Sprint(series, at), value, attrs)
					}
					switch m.Type() {
					case pmetric.MetricTypeSum:
						numbers(m.Sum().DataPoints(), point)
					case pmetric.MetricTypeGauge:
						numbers(m.Gauge().DataPoints(), point)
					case pmetric.MetricTypeHistogram:
						for _, p := range m.Histogram().DataPoints().All() {
							point(p.Timestamp(), fmt.Sprint(p.Count(), p.Sum()), p.Attributes())
						}
					case pmetric.MetricTypeExponentialHistogram:
						for _, p := range m.ExponentialHistogram().DataPoints().All() {
							point(p.Timestamp(), fmt.Sprint(p.Count(), p.Sum()), p.Attributes())
						}
					}
				}
			}
		}
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last == nil {
			s.last = map[string]string{}
		}
		maps.Copy(s.last, values)
	}
	return err
}

// ConsumeLogs implements consumer.Logs. An item is a record by its contents.
func (s *Sink) ConsumeLogs(ctx context.Context, ld plog.Logs) error {
	if pref.MarkPipelineOwnedLogs(ld) {
		defer pref.UnrefLogs(ld)
	}
	return s.consume(ctx, ld.MarkReadOnly, func(item func(string, string, pcommon.Map)) {
		for _, rl := range ld.ResourceLogs().All() {
			s.change("a resource", rl.Resource().Attributes())
			for _, sl := range rl.ScopeLogs().All() {
				s.change("a scope", sl.Scope().Attributes())
				for _, r := range sl.LogRecords().All() {
					id := fmt.Sprint(r.EventName(), r.Timestamp(), r.Body().AsString(), without(r.Attributes()))
					item(id, fmt.Sprint(id, without(rl.Resource().Attributes())), r.Attributes())
				}
			}
		}
	})
}

// ConsumeProfiles implements xconsumer.Profiles. An item is a profile by its type, time and values.
func (s *Sink) ConsumeProfiles(ctx context.Context, pd pprofile.Profiles) error {
	if pref.MarkPipelineOwnedProfiles(pd) {
		defer pref.UnrefProfiles(pd)
	}
	return s.consume(ctx, pd.MarkReadOnly, func(item func(string, string, pcommon.Map)) {
		for _, rp := range pd.ResourceProfiles().All() {
			s.change("a resource", rp.Resource().Attributes())
			for _, sp := range rp.ScopeProfiles().All() {
				s.change("a scope", sp.Scope().Attributes())
				for _, p := range sp.Profiles().All() {
					var values []int64
					for _, x := range p.Samples().All() {
						values = append(values, x.Values().AsRaw()...)
					}
					id := fmt.Sprint(pd.Dictionary().StringTable().At(int(p.SampleType().TypeStrindex())), p.Time(), values)
					item(id, id, pcommon.NewMap())
				}
			}
		}
	})
}

func numbers(list pmetric.NumberDataPointSlice, point func(pcommon.Timestamp, string, pcommon.Map)) {
	for _, p := range list.All() {
		point(p.Timestamp(), fmt.Sprint(p.IntValue(), p.DoubleValue()), p.Attributes())
	}
}

// without returns attributes without the mark of this package.
func without(m pcommon.Map) map[string]any {
	raw := m.AsRaw()
	delete(raw, changes)
	return raw
}

func (s *Sink) consume(
	ctx context.Context, share func(), each func(func(id, content string, attrs pcommon.Map)),
) error {
	if s.Wait != nil {
		if err := s.Wait(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contents == nil {
		s.contents, s.accepted = map[string][]string{}, map[string]int{}
		s.rejected, s.permanent = map[string]int{}, map[string]bool{}
	}
	var err error
	if s.Reject != nil {
		err = s.Reject()
	}
	each(func(id, content string, attrs pcommon.Map) {
		if !slices.Contains(s.contents[id], content) {
			s.contents[id] = append(s.contents[id], content)
		}
		s.change(id, attrs)
		switch {
		case err == nil:
			s.accepted[id]++
		case consumererror.IsPermanent(err):
			s.permanent[id] = true
		default:
			s.rejected[id]++
		}
	})
	if s.Shares {
		share()
	}
	return err
}

// change counts a change of the attributes of an item.
func (s *Sink) change(what string, attrs pcommon.Map) {
	if !s.Changes {
		return
	}
	if _, ok := attrs.Get(changes); ok {
		s.twice = append(s.twice, what)
	}
	attrs.PutBool(changes, true)
}

// Accepted returns how often each item was accepted.
func (s *Sink) Accepted() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.accepted)
}

// Rejected returns how many items were rejected, at least once.
func (s *Sink) Rejected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rejected) + len(s.permanent)
}

// Check checks that each item was accepted once and was the same in each attempt, and that nothing
// was changed twice. Items that were rejected permanently need not have been accepted. again
// permits that items were accepted repeatedly, because another consumer of the same data has
// rejected them.
func (s *Sink) Check(t testing.TB, items int, again bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	arrived := len(s.accepted)
	for id, n := range s.accepted {
		if !again {
			assert.Equal(t, 1, n, "%s was accepted repeatedly", id)
		}
	}
	for id := range s.permanent {
		if s.accepted[id] == 0 {
			arrived++
		}
	}
	assert.Equal(t, items, arrived, "items that arrived")
	for id, contents := range s.contents {
		assert.Len(t, contents, 1, "%s was sent with different contents", id)
	}
	assert.Empty(t, s.twice, "items that were changed twice")
}

// Send sends copies of spans until they are accepted, as a component does that repeats rejected
// data.
func Send(t testing.TB, to consumer.Traces, td ptrace.Traces) {
	t.Helper()
	for range 1000 {
		try := ptrace.NewTraces()
		td.CopyTo(try)
		if to.ConsumeTraces(context.Background(), try) == nil {
			return
		}
	}
	require.Fail(t, "the spans were never accepted")
}
