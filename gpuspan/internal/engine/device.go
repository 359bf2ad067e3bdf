// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

// device is one device with its clock. All but the atomics belongs to the polling thread.
type device struct {
	info     backend.Device
	attrs    []attribute.KeyValue // who it is: on metrics, and on the scope of its spans
	repeated []attribute.KeyValue // what each span repeats of it
	timed    scope                // of its spans that it timed itself
	untimed  scope                // and of the others
	stream   int                  // gpu.stream.id of the first stream, for the scope to say; 0: none yet, −1: too many
	anchorer *clockmap.Anchorer   // nil until the first stream
	axis     int64                // where the profiler's clock began on the axis of the anchorer
	failed   backend.Status       // the last anchor's, to report a change once

	floor     atomic.Int64 // ns of an empty section; 0: not known
	usualHalf atomic.Int64 // ns: half width that most sections keep, for the scope to say; 0: not known
	drift     atomicFloat  // ppm
	anomalies atomic.Int64
	halfNs    atomic.Int64 // half width that the newest section got; 0: none yet
}

// newDevice makes a device, whose spans have scopes of their own: who the device is stands there, once for all of them.
func (p *Profiler) newDevice(info backend.Device) *device {
	d := &device{info: info, attrs: identity(info)}
	for _, kv := range d.attrs {
		if kv.Key == semconv.HWIDKey || kv.Key == semconv.HWNameKey {
			d.repeated = append(d.repeated, kv)
		}
	}
	d.timed = p.newScope(func() []attribute.KeyValue { return d.scope(p, true) })
	d.untimed = p.newScope(func() []attribute.KeyValue { return d.scope(p, false) })
	return d
}

// scope is what the scope of the device's spans says.
func (d *device) scope(p *Profiler, timed bool) []attribute.KeyValue {
	kv := slices.Clip(d.attrs)
	if d.stream > 0 {
		kv = append(kv, semconv.GPUStreamIDKey.Int(d.stream))
	}
	if timed {
		kv = append(kv, semconv.GPUTimingSourceKey.String(p.source))
		if f := d.floor.Load(); f > 0 {
			kv = append(kv, semconv.GPUFloorDurationKey.Float64(seconds(f)))
		}
		if h := d.usualHalf.Load(); h > 0 {
			kv = append(kv, semconv.GPUTimingErrorKey.Float64(seconds(h)))
		}
	}
	return kv
}

// unusual reports whether a span with a half width of h ns states it: the scope's is no bound of it, or more than twice
// as wide.
func (d *device) unusual(h int64) bool {
	if d == nil {
		return true
	}
	usual := d.usualHalf.Load()
	return h > usual || 2*h < usual
}

// What a half width differs by from section to section: by their distance from the next anchor. The scope's is rounded
// up to a tenth of a microsecond.
const (
	halfSpread = 250
	halfStep   = 100
)

func usualHalf(h int64) int64 { return (h + halfSpread + halfStep - 1) / halfStep * halfStep }

// scope is an instrumentation scope, for a tracer and for a sink. Either is made at its first span, when it is known
// whether metrics leave the process.
type scope struct {
	tracer func() trace.Tracer
	sink   func() *SinkScope
}

// newScope makes a scope that says more.
func (p *Profiler) newScope(more func() []attribute.KeyValue) scope {
	return scope{
		tracer: sync.OnceValue(func() trace.Tracer {
			return p.cfg.Tracers.Tracer(scopeName, trace.WithInstrumentationVersion(Version),
				trace.WithSchemaURL(semconv.SchemaURL), trace.WithInstrumentationAttributes(p.metrics.scope(more())...))
		}),
		sink: sync.OnceValue(func() *SinkScope {
			return &SinkScope{Name: scopeName, Version: Version, Schema: semconv.SchemaURL, Attributes: p.metrics.scope(more())}
		}),
	}
}

// scope is where the spans of a stream belong. timed: their times are the device's.
func (s *Stream) scope(timed bool) *scope {
	switch {
	case s.device == nil:
		return &s.p.scope
	case timed:
		return &s.device.timed
	}
	return &s.device.untimed
}

// maxScopeStream bounds the scopes that differ in nothing but a stream's number: an SDK keeps the tracer of each for
// ever, and a program may make one profiler after another.
const maxScopeStream = 64

// describe makes the attributes of the stream's spans. The scope says which stream the first of a device is, mostly the
// only one, and spans of others say it themselves.
func (s *Stream) describe() {
	d := s.device
	if d != nil && d.stream == 0 {
		if d.stream = -1; s.id <= maxScopeStream {
			d.stream = s.id
		}
	}
	if d == nil || d.stream != s.id {
		s.attrs = append(s.attrs, semconv.GPUStreamIDKey.Int(s.id))
	}
	if d != nil {
		s.attrs = append(s.attrs, d.repeated...)
	}
}

// identity makes the attributes that say who a device is.
func identity(d backend.Device) []attribute.KeyValue {
	kv := make([]attribute.KeyValue, 0, 9)
	kv = appendStated(kv, semconv.HWIDKey, d.UUID)
	kv = appendStated(kv, semconv.HWParentKey, d.Parent)
	kv = appendStated(kv, semconv.HWModelKey, d.Model)
	kv = appendStated(kv, semconv.HWVendorKey, d.Vendor)
	kv = appendStated(kv, semconv.HWDriverVersionKey, d.DriverVersion)
	kv = appendStated(kv, semconv.GPUPCIBDFKey, d.PCIBDF)
	return append(kv,
		semconv.HWTypeKey.String(semconv.HWTypeGPU),
		semconv.HWNameKey.String(fmt.Sprintf("gpu%d", d.Ordinal)),
		semconv.GPUDeviceOrdinalKey.Int(d.Ordinal))
}

// openDevices runs on the polling thread.
func (t *poller) openDevices() error {
	b := t.back
	if err := b.ThreadInit(); err != nil {
		return fmt.Errorf("cannot prepare the polling thread: %w", err)
	}
	infos, err := b.Devices()
	if err != nil {
		return fmt.Errorf("cannot list devices: %w", err)
	}
	if len(infos) == 0 {
		return fmt.Errorf("backend %s found no device", b.Name())
	}
	list := make([]*device, len(infos))
	for i, info := range infos {
		list[i] = t.p.newDevice(info)
	}
	select {
	case <-t.quit:
		return errors.New("the answer came too late")
	default:
	}
	t.p.devices.set(list)
	return nil
}

// open makes the device's clock and measures its floor, when the first stream comes.
func (t *poller) openDevice(d *device) error {
	if d.anchorer != nil {
		return nil
	}
	b := t.back
	a, st := clockmap.NewAnchorer(b, backend.Context(d.info.Ordinal), clockmap.Defaults())
	if st != backend.StatusOK {
		return &backend.StatusError{Call: "cannot make clock events", Status: st}
	}
	if st := a.Anchor(); st != backend.StatusOK {
		a.Close()
		return &backend.StatusError{Call: "cannot anchor the device's clock", Status: st}
	}
	d.anchorer, d.axis = a, a.Axis(t.p.clock.time(0))
	d.measureFloor(b)
	t.p.describeDevice(d)
	return nil
}

// givenDevice is the device that the application names for streams without events.
func (t *poller) givenDevice(info backend.Device) *device {
	for _, d := range t.given {
		if sameDevice(d.info, info) {
			return d
		}
	}
	d := t.p.newDevice(info)
	t.given = append(t.given, d) // at most one for each stream
	t.p.describeDevice(d)
	return d
}

func sameDevice(a, b backend.Device) bool {
	a.Peaks, b.Peaks = nil, nil
	return a == b
}

// describeDevice tells the recorder what a device can do.
func (p *Profiler) describeDevice(d *device) {
	defer p.guard("the recorder was told of a device")
	if c, ok := p.recorder.(interface{ SetDevice(report.Device) }); ok {
		c.SetDevice(report.Device{
			Ordinal: d.info.Ordinal, ID: d.info.UUID, Model: d.info.Model,
			Floor: time.Duration(d.floor.Load()), Peaks: peaksOf(d.info),
		})
	}
}

// peaksOf are the limits that the backend states, else those of the model that the driver names. Instances of MIG have
// none here: which part of the device they are is not known to this process.
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

// measureFloor finds the GPU duration of an empty section on an idle stream, in the median: two events with nothing in
// between. The half width of the last one is what most sections will have.
func (d *device) measureFloor(b backend.Backend) {
	c := backend.Context(d.info.Ordinal)
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
	start := &backend.Call{Args: [2]uintptr{uintptr(ev[0]), uintptr(s)}}
	end := &backend.Call{Args: [2]uintptr{uintptr(ev[1]), uintptr(s)}}
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
	if stamps, ok := d.anchorer.Read(ev[0], ev[1], 0, 0); ok {
		d.usualHalf.Store(usualHalf(d.anchorer.Place(&stamps).HalfWidth))
	}
}
