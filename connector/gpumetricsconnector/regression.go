// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/regression"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// regressions compares the operations of versions.
type regressions struct {
	tracker *regression.Tracker
	// of the resource being read; they share the batch's memory
	version, namespace, environment string
}

// Attributes of the resource, by OpenTelemetry's conventions.
const (
	serviceVersion        = "service.version"
	serviceNamespace      = "service.namespace"
	deploymentEnvironment = "deployment.environment.name"
)

// source sets the resource of the spans that follow.
func (g *regressions) source(attrs pcommon.Map) {
	text := func(key string) string {
		if v, ok := attrs.Get(key); ok {
			return spanfacts.Clip(v.Str())
		}
		return ""
	}
	g.version, g.namespace, g.environment = text(serviceVersion), text(serviceNamespace), text(deploymentEnvironment)
}

// compareVersions adds a span to its operation's series, which the caller keeps from span to span. seconds are on the
// device.
func (a *aggregator) compareVersions(
	r *resource, f *facts, s **regression.Series, seconds, items float64, unit string,
) {
	g := a.regressions
	if g == nil || r.service == "" || f.End > a.latest() || seconds <= 0 && f.Energy <= 0 {
		return
	}
	if (*s).Gone() || !(*s).Holds(g.version, g.namespace, g.environment, items > 0) {
		*s = g.tracker.Series(regression.Key{
			Service: r.service, Namespace: g.namespace, Environment: g.environment, Operation: f.Name, Type: f.Type,
			ItemType: unit, Model: f.Device.Model, PerItem: items > 0,
		}, g.version)
		if *s == nil {
			return
		}
	}
	per := 1.0
	if items > 0 {
		per = items
	}
	(*s).Add([2]float64{seconds / per, f.Energy / per}, regression.Example{Key: f.Key, Start: f.Start, End: f.End})
}

var regressionQuantities = [...]string{
	regression.Time:   semconv.GPURegressionQuantityTime,
	regression.Energy: semconv.GPURegressionQuantityEnergy,
}

// regressed writes the ratios of the current regressions, and queues the findings of new ones.
func (a *aggregator) regressed(now int64) {
	if a.regressions == nil {
		return
	}
	a.regressions.tracker.Active(func(f *regression.Finding) {
		r := a.resource(serviceOf(f), &spanfacts.Resource{Service: f.Service, Rank: -1, WorldSize: -1})
		a.saw(r, f.Now.Example.End)
		attrs := pcommon.NewMap()
		attrs.PutStr(string(semconv.GPUOperationNameKey), f.Operation)
		attrs.PutStr(string(semconv.GPURegressionQuantityKey), regressionQuantities[f.Quantity])
		sharedcomponent.PutText(attrs, semconv.GPURegressionVersionKey, f.Version)
		attrs.PutStr(string(semconv.GPURegressionBaselineKey), f.Baseline)
		x := r.families[metricRegressionRatio].Get(&a.settings.Settings, attrs, f.Now.Example.Start)
		x.Ratio(f.Ratio, 1, now)
		x.Example(f.Ratio, f.Now.Example.Key, f.Now.Example.End)
	})
	found, dropped := a.regressions.tracker.Take()
	a.stats.operationLimit += dropped
	for _, f := range found {
		res := serviceOf(f)
		sharedcomponent.PutText(res, serviceVersion, f.Version)
		a.found = append(a.found, &reported{
			Finding: regressed(f),
			step: stepSpan{
				Key: f.Now.Example.Key, start: f.Now.Example.Start, end: f.Now.Example.End, resource: res,
			},
			regression: f,
		})
	}
}

func serviceOf(f *regression.Finding) pcommon.Map {
	attrs := pcommon.NewMap()
	attrs.PutStr(string(semconv.ServiceNameKey), f.Service)
	sharedcomponent.PutText(attrs, serviceNamespace, f.Namespace)
	sharedcomponent.PutText(attrs, deploymentEnvironment, f.Environment)
	return attrs
}

// regressionName is the prefix of the names of spans of regressions; the operation follows.
const regressionName = "regression"

// evidence returns a finding in words.
func evidence(f *regression.Finding) string {
	what, unit := "GPU time", "run"
	if f.Quantity == regression.Energy {
		what = "energy"
	}
	if f.PerItem {
		unit = "item"
		if f.ItemType != "" {
			unit = f.ItemType
		}
	}
	return fmt.Sprintf("%s per %s of %s is %.3g times as much as in %s (%.2f %% confidence: %.3g to %.3g; %d and %d runs)",
		what, unit, f.Operation, f.Ratio, f.Baseline, 100*regression.Confidence, f.Lower, f.Upper, f.Now.Count,
		f.Before.Count)
}

// writeRegression makes a regression's span: a child of the example, with a link to the example of the baseline. It has
// no gpu.operation.type, because it is not work of the device.
func (f *reported) writeRegression(s ptrace.Span) {
	x := f.regression
	s.SetTraceID(f.step.Trace)
	s.SetSpanID(sharedcomponent.SpanID(f.step.Trace[:], f.step.Span[:],
		[]byte(regressionName+regressionQuantities[x.Quantity]+x.Baseline)))
	s.SetParentSpanID(f.step.Span)
	s.SetKind(ptrace.SpanKindInternal)
	s.SetName(regressionName + " " + x.Operation)
	s.SetStartTimestamp(pcommon.Timestamp(f.step.start))
	s.SetEndTimestamp(pcommon.Timestamp(max(f.step.start, f.step.end)))
	a := s.Attributes()
	a.EnsureCapacity(16)
	a.PutStr(string(semconv.GPUOperationNameKey), x.Operation)
	putFinding(a, &f.Finding)
	a.PutStr(string(semconv.GPURegressionQuantityKey), regressionQuantities[x.Quantity])
	sharedcomponent.PutText(a, semconv.GPURegressionVersionKey, x.Version)
	a.PutStr(string(semconv.GPURegressionBaselineKey), x.Baseline)
	a.PutDouble(string(semconv.GPURegressionRatioKey), x.Ratio)
	a.PutDouble(string(semconv.GPURegressionLowerKey), x.Lower)
	a.PutDouble(string(semconv.GPURegressionUpperKey), x.Upper)
	a.PutInt(string(semconv.GPURegressionCountKey), x.Now.Count)
	a.PutInt(string(semconv.GPURegressionBaselineCountKey), x.Before.Count)
	if e := x.Before.Example; !e.Trace.IsEmpty() && !e.Span.IsEmpty() {
		l := s.Links().AppendEmpty()
		l.SetTraceID(e.Trace)
		l.SetSpanID(e.Span)
		l.Attributes().PutStr(string(semconv.GPURegressionBaselineKey), x.Baseline)
	}
}

// regressed returns the finding of a regression.
func regressed(x *regression.Finding) finding.Finding {
	of := finding.New(semconv.GPUFindingKindRegression, finding.Low)
	of.Subject, of.Evidence, of.Share, of.Threshold = x.Operation, evidence(x), x.Ratio-1, x.Threshold
	return of
}
