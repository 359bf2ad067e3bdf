// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// findings reads from the spans, as they leave the pipeline, what a user of the demo should see: they know nothing of
// the workload.
type findings struct {
	component.StartFunc
	component.ShutdownFunc

	mu        sync.Mutex
	requests  []served
	pageable  map[string]*found
	throttled map[string]*found
	spans     map[string]int     // by operation
	joules    map[string]float64 // of requests' accounts, by trace
}

// served is a request.
type served struct {
	trace   string
	seconds float64
}

// found sums the spans of an operation that have something in common.
type found struct {
	spans          int
	seconds, bytes float64
	share          float64 // of the peak, weighted by seconds
	reasons        string
}

func newFindings() *findings {
	return &findings{
		pageable: map[string]*found{}, throttled: map[string]*found{}, joules: map[string]float64{},
		spans: map[string]int{},
	}
}

// findingsType is the component type of findings as the end of a pipeline.
var findingsType = component.MustNewType("demo_findings")

func (f *findings) factory() exporter.Factory {
	create := func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) { return f, nil }
	return exporter.NewFactory(findingsType, func() component.Config { return &struct{}{} },
		exporter.WithTraces(create, component.StabilityLevelDevelopment))
}

// Capabilities implements consumer.Traces.
func (*findings) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeTraces implements consumer.Traces.
func (f *findings) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var resource spanfacts.Resource
	var scope spanfacts.Scope
	for _, rs := range td.ResourceSpans().All() {
		resource.Load(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(&resource, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				f.add(s, &scope)
			}
		}
	}
	return nil
}

func (f *findings) add(s ptrace.Span, scope *spanfacts.Scope) {
	if s.Kind() == ptrace.SpanKindServer {
		f.requests = append(f.requests, served{
			s.TraceID().String(),
			s.EndTimestamp().AsTime().Sub(s.StartTimestamp().AsTime()).Seconds(),
		})
		return
	}
	var x spanfacts.Facts
	if !x.Load(s, scope) {
		return
	}
	if !x.Kind.Work() {
		f.joules[s.TraceID().String()] += x.Energy
		return
	}
	f.spans[x.Name]++
	if memory, _ := s.Attributes().Get(
		string(semconv.GPUCopyHostMemoryKey)); memory.Str() == semconv.GPUCopyHostMemoryPageable {
		of(f.pageable, x.Name).add(&x)
	}
	// What contains the work that was held back would only say it again.
	reasons, ok := s.Attributes().Get(string(semconv.GPUThrottleReasonsKey))
	if ok && reasons.Slice().Len() > 0 && x.FLOPs > 0 && x.Kind != spanfacts.Step {
		t := of(f.throttled, x.Name)
		t.add(&x)
		t.reasons = reasons.Slice().At(0).Str()
	}
}

func of(m map[string]*found, name string) *found {
	if m[name] == nil {
		m[name] = &found{}
	}
	return m[name]
}

func (x *found) add(f *spanfacts.Facts) {
	x.spans++
	x.seconds += f.Time
	x.bytes += f.Size
	x.share += f.Roofline * f.Time
}

// most is the operation with the largest value.
func most(m map[string]*found, value func(name string, x *found) float64) (string, *found) {
	name, best := "", (*found)(nil)
	for n, x := range m {
		if best == nil || cmp.Or(cmp.Compare(value(n, x), value(name, best)), cmp.Compare(x.seconds, best.seconds)) > 0 {
			name, best = n, x
		}
	}
	return name, best
}

// write says what was found, with the evidence and what is to be done.
func (f *findings) write(w io.Writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	if n := len(f.requests); n > 2 {
		slices.SortFunc(f.requests, func(a, b served) int { return cmp.Compare(a.seconds, b.seconds) })
		slow, median := f.requests[n-1], f.requests[n/2]
		line := fmt.Sprintf("slow request: %s, the median of %d takes %s", short(slow.seconds), n, short(median.seconds))
		if j := f.joules[slow.trace]; j > 0 {
			line += fmt.Sprintf("; it used %.1f J", j)
		}
		lines = append(lines, line+" (trace "+slow.trace+")")
	}
	// What ran at the same time has the reasons too; they are of what had them most often.
	often := func(name string, x *found) float64 { return float64(x.spans) / float64(f.spans[name]) }
	if name, x := most(f.throttled, often); x != nil {
		lines = append(lines, fmt.Sprintf("throttle: the clock was held back in %d of %d spans of %s, %s of GPU time (%s)",
			x.spans, f.spans[name], printable.Line(name), short(x.seconds), printable.Line(x.reasons)))
	}
	if name, x := most(f.pageable, func(_ string, x *found) float64 { return x.bytes }); x != nil && x.seconds > 0 {
		line := fmt.Sprintf("pageable copy: %s moves from pageable memory at %.1f GB/s", printable.Line(name),
			x.bytes/x.seconds*1e-9)
		if x.share > 0 {
			line += fmt.Sprintf(", %.0f %% of the bus", 100*x.share/x.seconds)
		}
		lines = append(lines, line+" (pin it)")
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(w, "\nWhat stands out:")
	for _, l := range lines {
		fmt.Fprintln(w, "  "+l)
	}
}

func short(seconds float64) string {
	return time.Duration(seconds * 1e9).Round(100 * time.Microsecond).String()
}
