// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/semconv"
)

// Device is one device with its clock. Everything except the atomics belongs to the polling thread.
type Device struct {
	Info     backend.Device
	Attrs    []attribute.KeyValue // its identity: on metrics, and on the scope of its spans
	repeated []attribute.KeyValue // what each span repeats of it
	timed    *Scope               // of its spans that it timed itself
	untimed  *Scope               // and of the others
	stream   int                  // gpu.stream.id of the first stream, for the scope; 0: none yet, −1: too many
	Anchorer *clockmap.Anchorer   // nil until the first stream
	Axis     int64                // start of the profiler's clock on the axis of the anchorer
	Failed   backend.Status       // the last anchor's, to report a change once
	Restarts int64                // backward jumps of its clock that were reported

	Floor     atomic.Int64 // ns of an empty section; 0: unknown
	UsualHalf atomic.Int64 // ns: half width within which most sections are, for the scope; 0: unknown
	Drift     atomicFloat  // ppm
	Anomalies atomic.Int64
	HalfNs    atomic.Int64 // half width of the newest section; 0: none yet
}

// NewDevice creates a device, whose spans have their own scopes with the identity of the device, once for all of
// them.
func (p *Core) NewDevice(info backend.Device) *Device {
	d := &Device{Info: info, Attrs: identity(info)}
	for _, kv := range d.Attrs {
		if kv.Key == semconv.HWIDKey || kv.Key == semconv.HWNameKey {
			d.repeated = append(d.repeated, kv)
		}
	}
	d.timed = p.NewScope(func() []attribute.KeyValue { return d.scope(p, true) })
	d.untimed = p.NewScope(func() []attribute.KeyValue { return d.scope(p, false) })
	return d
}

// scope returns the attributes of the scope of the device's spans.
func (d *Device) scope(p *Core, timed bool) []attribute.KeyValue {
	kv := slices.Clip(d.Attrs)
	if d.stream > 0 {
		kv = append(kv, semconv.GPUStreamIDKey.Int(d.stream))
	}
	if timed {
		kv = append(kv, semconv.GPUTimingSourceKey.String(p.SourceName))
		if f := d.Floor.Load(); f > 0 {
			kv = append(kv, semconv.GPUFloorDurationKey.Float64(spanattr.Seconds(f)))
		}
		if h := d.UsualHalf.Load(); h > 0 {
			kv = append(kv, semconv.GPUTimingErrorKey.Float64(spanattr.Seconds(h)))
		}
	}
	return kv
}

// Unusual reports whether a span with a half width of h ns states it: the scope's is smaller, or more than twice as
// wide.
func (d *Device) Unusual(h int64) bool {
	if d == nil {
		return true
	}
	usual := d.UsualHalf.Load()
	return h > usual || 2*h < usual
}

// Scope is an instrumentation scope, for a tracer and for a sink. Either is created at its first span, when it is known
// whether metrics leave the process, and again when that changes, as by a MeterProvider that is set later.
type Scope struct {
	p    *Core
	more func() []attribute.KeyValue
	mu   sync.Mutex

	tracers [2]trace.Tracer // without and with gpu.metrics.emitted
	sinks   [2]*sink.Scope
}

// NewScope creates a scope with additional attributes.
func (p *Core) NewScope(more func() []attribute.KeyValue) *Scope { return &Scope{p: p, more: more} }

// Tracer returns the tracer of the scope.
func (s *Scope) Tracer() trace.Tracer {
	i := s.variant()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracers[i] == nil {
		s.tracers[i] = s.p.Cfg.Tracers.Tracer(ScopeName, trace.WithInstrumentationVersion(Version),
			trace.WithSchemaURL(semconv.SchemaURL), trace.WithInstrumentationAttributes(s.attributes(i)...))
	}
	return s.tracers[i]
}

// Sink returns the scope for a sink.
func (s *Scope) Sink() *sink.Scope {
	i := s.variant()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sinks[i] == nil {
		s.sinks[i] = &sink.Scope{
			Name: ScopeName, Version: Version, Schema: semconv.SchemaURL, Attributes: s.attributes(i),
		}
	}
	return s.sinks[i]
}

func (s *Scope) variant() int {
	if s.p.MetricsEmitted() {
		return 1
	}
	return 0
}

// attributes marks spans whose metrics leave the process: consumers that see gpu.metrics.emitted need not compute the
// first five gpu.operation.* metrics from them.
func (s *Scope) attributes(variant int) []attribute.KeyValue {
	kv := s.more()
	if variant == 1 {
		kv = append(slices.Clip(kv), semconv.GPUMetricsEmittedKey.Bool(true))
	}
	return kv
}

// Scope returns the instrumentation scope of the spans of a stream. If timed is set, their times are the device's.
func (s *EventRecorder) Scope(timed bool) *Scope {
	switch {
	case s.Device == nil:
		return s.Core.Scope
	case timed:
		return s.Device.timed
	}
	return s.Device.untimed
}

// MaxScopeStream bounds the scopes that differ only in a stream's number: an SDK keeps the tracer of each forever, and
// a program may create one profiler after another.
const MaxScopeStream = 64

// Describe sets the attributes of the stream's spans. The scope states the first stream of a device, often the only
// one; spans of other streams state theirs themselves.
func (s *Stream) Describe() {
	d := s.Device
	if d != nil && d.stream == 0 {
		if d.stream = -1; s.ID <= MaxScopeStream {
			d.stream = s.ID
		}
	}
	if d == nil || d.stream != s.ID {
		s.Attrs = append(s.Attrs, semconv.GPUStreamIDKey.Int(s.ID))
	}
	if d != nil {
		s.Attrs = append(s.Attrs, d.repeated...)
	}
}

// identity returns the attributes that identify a device.
func identity(d backend.Device) []attribute.KeyValue {
	kv := make([]attribute.KeyValue, 0, 9)
	kv = spanattr.AppendStated(kv, semconv.HWIDKey, d.UUID)
	kv = spanattr.AppendStated(kv, semconv.HWParentKey, d.Parent)
	kv = spanattr.AppendStated(kv, semconv.HWModelKey, d.Model)
	kv = spanattr.AppendStated(kv, semconv.HWVendorKey, d.Vendor)
	kv = spanattr.AppendStated(kv, semconv.HWDriverVersionKey, d.DriverVersion)
	kv = spanattr.AppendStated(kv, semconv.GPUPCIBDFKey, d.PCIBDF)
	return append(kv,
		semconv.HWTypeKey.String(semconv.HWTypeGPU),
		semconv.HWNameKey.String(fmt.Sprintf("gpu%d", d.Ordinal)),
		semconv.GPUDeviceOrdinalKey.Int(d.Ordinal))
}

// atomicFloat is a float64 that is read and written by different goroutines.
type atomicFloat struct{ bits atomic.Uint64 }

func (f *atomicFloat) Load() float64 { return math.Float64frombits(f.bits.Load()) }

func (f *atomicFloat) Store(v float64) { f.bits.Store(math.Float64bits(v)) }
