// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/roofline"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// deriver is the processor. Batches are processed concurrently; they share the resolver and the
// assembler, which have their own locks.
type deriver struct {
	cfg      *Config
	log      *zap.Logger
	tel      *metadata.TelemetryBuilder
	resolver *resolver
	steps    *assembler // nil: off
	mappings mapper
	floor    float64 // s
}

func newDeriver(cfg *Config, set component.TelemetrySettings) (*deriver, error) {
	tel, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	d := &deriver{
		cfg: cfg, log: set.Logger, tel: tel, resolver: newResolver(cfg, set.Logger),
		mappings: mapper{own: cfg.Mappings, resource: slices.Clone(cfg.ResourceMappings)}, floor: cfg.Floor.Seconds(),
	}
	for _, name := range cfg.Presets {
		d.mappings.presets = append(d.mappings.presets, presets()[name].Mappings...)
		d.mappings.resource = append(d.mappings.resource, presets()[name].ResourceMappings...)
	}
	if a := cfg.AssembleSteps.Get(); a != nil {
		d.steps = newAssembler(*a)
	}
	return d, nil
}

func (d *deriver) start(_ context.Context, host component.Host) error {
	if d.cfg.Samples == nil {
		return nil
	}
	reader, err := devicesamples.FindReader(host, *d.cfg.Samples)
	if err != nil {
		return err
	}
	d.resolver.reader = reader
	return nil
}

func (d *deriver) shutdown(context.Context) error {
	d.tel.Shutdown()
	return nil
}

// batch is the state of one call: counts for the telemetry, and the devices of the last spans,
// which the next spans mostly have too.
type batch struct {
	*tally
	now      int64
	recent   [8]deviceRoof
	found    int // found so far
	resource spanfacts.Resource
}

// tally is what is counted of a batch when the next component has accepted it: a rejected batch
// arrives again.
type tally struct {
	counts          [roofline.Outcomes]int64
	mapped, noPeaks int64
	assembled       int64 // steps
}

type tallyKey struct{}

// counted is the processor: it counts batches that the next component has accepted.
type counted struct {
	processor.Traces // calls process
	*deriver
}

// ConsumeTraces implements consumer.Traces.
func (c counted) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	var t tally
	err := c.Traces.ConsumeTraces(context.WithValue(ctx, tallyKey{}, &t), td)
	if err == nil {
		c.count(ctx, &t)
	}
	return err
}

func (d *deriver) process(ctx context.Context, td ptrace.Traces) (ptrace.Traces, error) {
	spanfacts.ValidTraces(td)
	t, _ := ctx.Value(tallyKey{}).(*tally)
	if t == nil {
		t = new(tally)
	}
	b := batch{tally: t, now: time.Now().UnixNano()}
	b.mapped = d.mappings.mapAll(td)
	if d.steps != nil {
		var evicted int64
		t.assembled, evicted = d.steps.assemble(td, b.now)
		sharedcomponent.Count(ctx, d.tel.ProcessorGpuDeriveStepsEvicted, evicted, nil)
	}
	for _, rs := range td.ResourceSpans().All() {
		b.resource.Load(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			d.scope(&b, ss)
		}
	}
	return td, nil
}

func (d *deriver) scope(b *batch, ss ptrace.ScopeSpans) {
	var scope spanfacts.Scope
	scope.Load(&b.resource, ss.Scope().Attributes())
	var f spanfacts.Facts
	var out values
	peaks := "" // gpu.peak.source of the scope
	for _, s := range ss.Spans().All() {
		if !f.Load(s, &scope) {
			continue
		}
		d.repeat(s, ss.Scope())
		if !f.Kind.Work() {
			continue
		}
		f.Precision = cmp.Or(f.Precision, d.cfg.Precision)
		r := d.roof(b, &f)
		o := out.Derive(&f, r, d.floor)
		b.counts[o]++
		if o == roofline.Derived && r == nil {
			b.noPeaks++
		}
		if d.cfg.Attributes == spanfacts.Lean {
			peaks = out.lean(ss.Scope(), peaks)
		}
		out.put(s.Attributes())
	}
}

// repeat copies attributes of the scope to a span that does not have them.
func (d *deriver) repeat(s ptrace.Span, scope pcommon.InstrumentationScope) {
	for _, key := range d.cfg.Repeat {
		of, known := scope.Attributes().Get(key)
		if !known {
			continue
		}
		if v, there := s.Attributes().GetOrPutEmpty(key); !there {
			of.CopyTo(v)
		}
	}
}

// deviceRoof is a device and its roof.
type deviceRoof struct {
	device
	roof *roofline.Roof
}

// roof resolves the span's device; for one of the last few devices it takes no lock and hashes
// nothing.
func (d *deriver) roof(b *batch, f *spanfacts.Facts) *roofline.Roof {
	dev := device{f.Device.ID, f.Device.Parent, f.Device.Model}
	for i := range min(b.found, len(b.recent)) {
		if p := &b.recent[i]; p.device == dev {
			return p.roof
		}
	}
	p := &b.recent[b.found%len(b.recent)]
	b.found++
	p.device, p.roof = dev, d.resolver.roof(dev, b.now)
	return p.roof
}

// values are derived values that are written on a span.
type values struct{ roofline.Values }

// lean removes the values that only level full has, and rounds the rest. The source of the peaks is
// stated once on the scope, as the first span has it; spans with another source state it
// themselves. It returns the scope's.
func (x *values) lean(scope pcommon.InstrumentationScope, peaks string) string {
	nan := math.NaN()
	x.ReadRate, x.WriteRate, x.Intensity = nan, nan, nan
	if !math.IsNaN(x.Utilization) { // the rate on the side of the ridge where the work is, and its share of the roof
		if x.FLOPUtilization > x.IOUtilization {
			x.IORate = nan
		} else {
			x.FLOPRate = nan
		}
		x.IOUtilization, x.FLOPUtilization = nan, nan
	}
	if x.Declaration == semconv.GPUDeclarationStatusOk {
		x.Declaration = ""
	}
	if x.RateStatus == semconv.GPURateStatusOk {
		x.RateStatus = ""
	}
	for _, v := range [...]*float64{
		&x.IORate, &x.BusRate, &x.IOUtilization, &x.FLOPRate, &x.FLOPUtilization, &x.Utilization, &x.ItemRate,
		&x.StepItemRate, &x.MFU, &x.HFU,
	} {
		*v = spanfacts.Round5(*v)
	}
	if x.PeakSource == "" {
		return peaks
	}
	if peaks == "" {
		v, there := scope.Attributes().GetOrPutEmpty(string(semconv.GPUPeakSourceKey))
		if !there {
			v.SetStr(x.PeakSource)
		}
		peaks = v.Str()
	}
	if x.PeakSource == peaks {
		x.PeakSource = ""
	}
	return peaks
}

// put writes the values that are present. Whatever the inputs were, only finite numbers ≥ 0 are
// written.
func (x *values) put(attrs pcommon.Map) {
	doubles := [...]struct {
		key string
		v   float64
	}{
		{string(semconv.GPUIORateKey), x.IORate},
		{string(semconv.GPUIOReadRateKey), x.ReadRate},
		{string(semconv.GPUIOWriteRateKey), x.WriteRate},
		{string(semconv.GPUIOUtilizationKey), x.IOUtilization},
		{string(semconv.GPUCollectiveBusRateKey), x.BusRate},
		{string(semconv.GPUFLOPRateKey), x.FLOPRate},
		{string(semconv.GPUFLOPUtilizationKey), x.FLOPUtilization},
		{string(semconv.GPUArithmeticIntensityKey), x.Intensity},
		{string(semconv.GPURooflineUtilizationKey), x.Utilization},
		{string(semconv.GPUOperationItemRateKey), x.ItemRate},
		{string(semconv.GPUStepItemRateKey), x.StepItemRate},
		{string(semconv.GPUStepMFUKey), x.MFU},
		{string(semconv.GPUStepHFUKey), x.HFU},
	}
	texts := [...]struct{ key, v string }{
		{string(semconv.GPUIOBasisKey), x.Basis},
		{string(semconv.GPURooflineBoundKey), x.Bound},
		{string(semconv.GPUPeakSourceKey), x.PeakSource},
		{string(semconv.GPUDeclarationStatusKey), x.Declaration},
		{string(semconv.GPURateStatusKey), x.RateStatus},
	}
	n := 0
	for i := range doubles {
		if v := doubles[i].v; v >= 0 && v <= math.MaxFloat64 { // false for NaN
			doubles[n] = doubles[i]
			n++
		}
	}
	m := 0
	for i := range texts {
		if texts[i].v != "" {
			texts[m] = texts[i]
			m++
		}
	}
	if n+m == 0 {
		return
	}
	attrs.EnsureCapacity(attrs.Len() + n + m) // one growth, not one for each doubling
	for i := range doubles[:n] {
		attrs.PutDouble(doubles[i].key, doubles[i].v)
	}
	for i := range texts[:m] {
		attrs.PutStr(texts[i].key, texts[i].v)
	}
}

var outcomeOptions = [roofline.Outcomes]metric.AddOption{
	roofline.Derived:    sharedcomponent.Label("outcome", "derived"),
	roofline.BelowFloor: sharedcomponent.Label("outcome", "below_floor"),
	roofline.Untimed:    sharedcomponent.Label("outcome", "untimed"),
	roofline.Undeclared: sharedcomponent.Label("outcome", "undeclared"),
}

func (d *deriver) count(ctx context.Context, b *tally) {
	for o, n := range b.counts {
		sharedcomponent.Count(ctx, d.tel.ProcessorGpuDeriveSpans, n, outcomeOptions[o])
	}
	sharedcomponent.Count(ctx, d.tel.ProcessorGpuDeriveMapped, b.mapped, nil)
	sharedcomponent.Count(ctx, d.tel.ProcessorGpuDeriveUnknownPeaks, b.noPeaks, nil)
	sharedcomponent.Count(ctx, d.tel.ProcessorGpuDeriveStepsAssembled, b.assembled, nil)
}
