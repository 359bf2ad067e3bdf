// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

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
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/gpuspan/report"
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
	axis     int64                // start of the profiler's clock on the axis of the anchorer
	failed   backend.Status       // the last anchor's, to report a change once
	restarts int64                // backward jumps of its clock that were reported

	floor     atomic.Int64 // ns of an empty section; 0: unknown
	usualHalf atomic.Int64 // ns: half width within which most sections are, for the scope; 0: unknown
	drift     atomicFloat  // ppm
	anomalies atomic.Int64
	halfNs    atomic.Int64 // half width of the newest section; 0: none yet
}

// scope returns the attributes of the scope of the device's spans, which the source timed; empty:
// the device did not.
func (d *Device) scope(source string) []attribute.KeyValue {
	kv := slices.Clip(d.Attrs)
	if d.stream > 0 {
		kv = append(kv, semconv.GPUStreamIDKey.Int(d.stream))
	}
	if source != "" {
		kv = append(kv, semconv.GPUTimingSourceKey.String(source))
		if f := d.floor.Load(); f > 0 {
			kv = append(kv, semconv.GPUFloorDurationKey.Float64(spanattr.Seconds(f)))
		}
		if h := d.usualHalf.Load(); h > 0 {
			kv = append(kv, semconv.GPUTimingErrorKey.Float64(spanattr.Seconds(h)))
		}
	}
	return kv
}

// Unusual reports whether a span with a half width of h ns states it: the scope's is smaller, or
// more than twice as wide.
func (d *Device) Unusual(h int64) bool {
	if d == nil {
		return true
	}
	usual := d.usualHalf.Load()
	return h > usual || 2*h < usual
}

// Floor returns the time of an empty section in ns; 0: unknown.
func (d *Device) Floor() int64 { return d.floor.Load() }

// ClockState returns the half width of the newest section in ns, 0 without one, the drift of the
// device's clock in ppm, and how often the clock was not as expected.
func (d *Device) ClockState() (half int64, drift float64, anomalies int64) {
	return d.halfNs.Load(), d.drift.load(), d.anomalies.Load()
}

// Scope is an instrumentation scope, for a tracer and for a sink. Either is created at its first
// span, when it is known whether metrics leave the process, and again when that changes, as by a
// MeterProvider that is set later.
type Scope struct {
	provider trace.TracerProvider
	emitted  func() bool // whether the metrics of sections leave the process
	more     func() []attribute.KeyValue

	mu      sync.Mutex
	tracers [2]trace.Tracer // without and with gpu.metrics.emitted
	sinks   [2]*sink.Scope
}

// Tracer returns the tracer of the scope.
func (s *Scope) Tracer() trace.Tracer {
	i := s.variant()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracers[i] == nil {
		s.tracers[i] = s.provider.Tracer(ScopeName, trace.WithInstrumentationVersion(Version),
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
	if s.emitted() {
		return 1
	}
	return 0
}

// attributes marks spans whose metrics leave the process: consumers that see gpu.metrics.emitted
// need not compute the first five gpu.operation.* metrics from them.
func (s *Scope) attributes(variant int) []attribute.KeyValue {
	kv := s.more()
	if variant == 1 {
		kv = append(slices.Clip(kv), semconv.GPUMetricsEmittedKey.Bool(true))
	}
	return kv
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

const ScopeName = "github.com/otelgpu/otelgpu/gpuspan"

// Version is the version of this module, on the instrumentation scope of its spans and metrics.
const Version = "0.1.0"

// atomicFloat is a float64 that is read and written by different goroutines.
type atomicFloat struct{ bits atomic.Uint64 }

func (f *atomicFloat) load() float64 { return math.Float64frombits(f.bits.Load()) }

func (f *atomicFloat) store(v float64) { f.bits.Store(math.Float64bits(v)) }

// Half widths differ from section to section by their distance from the next anchor. The scope's
// half width is rounded up to a tenth of a microsecond.
const (
	halfSpread = 250
	HalfStep   = 100
)

func UsualHalf(h int64) int64 { return (h + halfSpread + HalfStep - 1) / HalfStep * HalfStep }

func sameDevice(a, b backend.Device) bool {
	a.Peaks, b.Peaks = nil, nil
	return a == b
}

// peaksOf returns the limits from the backend, otherwise the limits of the driver's model name. MIG
// instances have none here: this process does not know which part of the device they are.
func peaksOf(info backend.Device) report.Peaks {
	if info.Peaks != nil {
		return *info.Peaks
	}
	if info.Parent != "" {
		return report.Peaks{}
	}
	row, ok := peaks.Lookup(info.Model)
	if !ok {
		return report.Peaks{}
	}
	out := report.Peaks{
		Memory: row.MemoryBandwidth, PCIe: row.Host.Rate(), FLOPs: map[string]float64{},
		Source: semconv.GPUPeakSourceTable,
	}
	for _, precision := range peaks.Precisions() {
		if v := row.FLOPs.Of(precision); v > 0 {
			out.FLOPs[precision] = v
		}
	}
	return out
}

const floorRuns = 16

// measureFloor measures the GPU duration of an empty section on an idle stream, the median of
// several: two events with nothing in between. The half width of the last one is what most sections
// will have.
func measureFloor(d *Device, b backend.Backend) {
	c := backend.Context(d.Info.Ordinal)
	s, st := b.NewStream(c)
	if st != backend.StatusOK {
		return
	}
	defer b.FreeStream(c, s)
	ev := make([]backend.Event, 2)
	if b.NewEvents(c, ev) != backend.StatusOK {
		return
	}
	defer b.FreeEvents(c, ev)
	unbind, st := b.Bind(c)
	if st != backend.StatusOK {
		return
	}
	defer unbind()
	start := &backend.Call{Args: [2]uintptr{uintptr(ev[0]), s}}
	end := &backend.Call{Args: [2]uintptr{uintptr(ev[1]), s}}
	runs := make([]float64, 0, floorRuns)
	for range floorRuns {
		if b.Record(start) != backend.StatusOK || b.Record(end) != backend.StatusOK ||
			b.Synchronize(ev[1]) != backend.StatusOK {
			return
		}
		ns, st := b.Elapsed(ev[0], ev[1])
		if st != backend.StatusOK {
			return
		}
		runs = append(runs, ns)
	}
	slices.Sort(runs)
	d.floor.Store(int64(runs[len(runs)/2]))
	if stamps, ok := d.Anchorer.Read(ev[0], ev[1], 0, 0); ok {
		d.usualHalf.Store(UsualHalf(d.Anchorer.Place(&stamps).HalfWidth))
	}
}
