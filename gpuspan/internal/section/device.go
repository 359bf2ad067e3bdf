// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

// newDevice creates a device, whose spans have their own scopes with the identity of the device,
// once for all of them.
func (p *Core) newDevice(info backend.Device) *Device {
	d := &Device{Info: info, Attrs: identity(info)}
	for _, kv := range d.Attrs {
		if kv.Key == semconv.HWIDKey || kv.Key == semconv.HWNameKey {
			d.repeated = append(d.repeated, kv)
		}
	}
	d.timed = p.newScope(func() []attribute.KeyValue { return d.scope(p, true) })
	d.untimed = p.newScope(func() []attribute.KeyValue { return d.scope(p, false) })
	return d
}

// scope returns the attributes of the scope of the device's spans.
func (d *Device) scope(p *Core, timed bool) []attribute.KeyValue {
	kv := slices.Clip(d.Attrs)
	if d.stream > 0 {
		kv = append(kv, semconv.GPUStreamIDKey.Int(d.stream))
	}
	if timed {
		kv = append(kv, semconv.GPUTimingSourceKey.String(p.source))
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
	p    *Core
	more func() []attribute.KeyValue
	mu   sync.Mutex

	tracers [2]trace.Tracer // without and with gpu.metrics.emitted
	sinks   [2]*sink.Scope
}

// newScope creates a scope with additional attributes.
func (p *Core) newScope(more func() []attribute.KeyValue) *Scope { return &Scope{p: p, more: more} }

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

// attributes marks spans whose metrics leave the process: consumers that see gpu.metrics.emitted
// need not compute the first five gpu.operation.* metrics from them.
func (s *Scope) attributes(variant int) []attribute.KeyValue {
	kv := s.more()
	if variant == 1 {
		kv = append(slices.Clip(kv), semconv.GPUMetricsEmittedKey.Bool(true))
	}
	return kv
}

// Scope returns the instrumentation scope of the spans of a stream. If timed is set, their times
// are the device's.
func (s *Stream) Scope(timed bool) *Scope {
	switch {
	case s.Device == nil:
		return s.Core.scope
	case timed:
		return s.Device.timed
	}
	return s.Device.untimed
}

// MaxScopeStream bounds the scopes that differ only in a stream's number: an SDK keeps the tracer
// of each forever, and a program may create one profiler after another.
const MaxScopeStream = 64

// describe sets the attributes of the stream's spans. The scope states the first stream of a
// device, often the only one; spans of other streams state theirs themselves.
func (s *Stream) describe() {
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

func (f *atomicFloat) load() float64 { return math.Float64frombits(f.bits.Load()) }

func (f *atomicFloat) store(v float64) { f.bits.Store(math.Float64bits(v)) }

// Half widths differ from section to section by their distance from the next anchor. The scope's
// half width is rounded up to a tenth of a microsecond.
const (
	halfSpread = 250
	HalfStep   = 100
)

func UsualHalf(h int64) int64 { return (h + halfSpread + HalfStep - 1) / HalfStep * HalfStep }

// openDevices lists the devices of a backend, on a separate thread, because a driver may hang
// while it is loaded. If it does not respond within the limit, the thread is left behind with the
// backend, which it closes, and shares nothing else with the profiler. An error means that the
// backend is closed or will be.
func openDevices(p *Core, b backend.Backend) ([]backend.Device, error) {
	type answer struct {
		devices []backend.Device
		err     error
	}
	answers, left := make(chan answer), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: ThreadInit changes the thread
		a := answer{err: errors.New("the goroutine was ended by the backend's code")}
		defer func() {
			if r := recover(); r != nil {
				a.err = fmt.Errorf("recovered: %v", r)
			}
			if a.err != nil {
				closeBackend(p, b)
			}
			select {
			case answers <- a:
			case <-left:
				if a.err == nil {
					closeBackend(p, b)
				}
			}
		}()
		a.devices, a.err = listDevices(b)
	}()
	select {
	case a := <-answers:
		return a.devices, a.err
	case <-time.After(p.Cfg.OpenTimeout):
		close(left)
		return nil, errors.New("the driver does not respond")
	}
}

// owned are the backends of profilers that are not shut down.
var owned sync.Map

var errOwned = errors.New("the backend belongs to another profiler (open one for each, or share the profiler)")

// own makes the backend the profiler's; false if another one has it. A value that cannot be
// compared is not shared.
func own(b backend.Backend) bool {
	if !reflect.TypeOf(b).Comparable() {
		return true
	}
	_, taken := owned.LoadOrStore(b, true)
	return !taken
}

func listDevices(b backend.Backend) ([]backend.Device, error) {
	if err := b.ThreadInit(); err != nil {
		return nil, fmt.Errorf("cannot prepare the polling thread: %w", err)
	}
	infos, err := b.Devices()
	if err != nil {
		return nil, fmt.Errorf("cannot list devices: %w", err)
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("backend %s found no device", b.Name())
	}
	return infos, nil
}

// openDevice opens the device's clock and measures its floor, when its first stream is registered.
func (t *Poller) openDevice(d *Device) error {
	if d.Anchorer != nil {
		return nil
	}
	b := t.back
	a, st := clockmap.NewAnchorer(b, backend.Context(d.Info.Ordinal), clockmap.Defaults())
	if st != backend.StatusOK {
		return &backend.StatusError{Call: "cannot make clock events", Status: st}
	}
	if st := a.Anchor(); st != backend.StatusOK {
		a.Close()
		return &backend.StatusError{Call: "cannot anchor the device's clock", Status: st}
	}
	d.Anchorer, d.axis = a, a.Axis(t.p.Clock.Time(0))
	measureFloor(d, b)
	describeDevice(t.p, d)
	return nil
}

// givenDevice returns the device that the application names for streams without events.
func (t *Poller) givenDevice(info backend.Device) *Device {
	for _, d := range t.given {
		if sameDevice(d.Info, info) {
			return d
		}
	}
	d := t.p.newDevice(info)
	t.given = append(t.given, d) // at most one for each stream
	describeDevice(t.p, d)
	return d
}

func sameDevice(a, b backend.Device) bool {
	a.Peaks, b.Peaks = nil, nil
	return a == b
}

// describeDevice reports the device's capabilities to the recorder.
func describeDevice(p *Core, d *Device) {
	if p.Recorder != nil {
		p.Recorder.SetDevice(report.Device{
			Ordinal: d.Info.Ordinal, ID: d.Info.UUID, Model: d.Info.Model,
			Floor: time.Duration(d.floor.Load()), Peaks: peaksOf(d.Info),
		})
	}
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
