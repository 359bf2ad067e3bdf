// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

// Half widths differ from section to section by their distance from the next anchor. The scope's half width is rounded
// up to a tenth of a microsecond.
const (
	halfSpread = 250
	HalfStep   = 100
)

func UsualHalf(h int64) int64 { return (h + halfSpread + HalfStep - 1) / HalfStep * HalfStep }

// registrar opens devices and registers streams on them.
type registrar struct {
	Worker
	p     *record.Core
	back  backend.Backend  // nil: host times only
	given []*record.Device // named by the application, without a backend
}

// Open lists the devices of a backend, on a thread of its own, because a driver may hang while it is loaded. If it does
// not respond within the limit, the thread is left behind with the backend, which it closes, and shares nothing else
// with the profiler. An error means that the backend is closed or will be.
func Open(p *record.Core, b backend.Backend) ([]backend.Device, error) {
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
func (t *registrar) openDevice(d *record.Device) error {
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
	d.Anchorer, d.Axis = a, a.Axis(t.p.Clock.Time(0))
	measureFloor(d, b)
	describeDevice(t.p, d)
	return nil
}

// givenDevice returns the device that the application names for streams without events.
func (t *registrar) givenDevice(info backend.Device) *record.Device {
	for _, d := range t.given {
		if sameDevice(d.Info, info) {
			return d
		}
	}
	d := t.p.NewDevice(info)
	t.given = append(t.given, d) // at most one for each stream
	describeDevice(t.p, d)
	return d
}

func sameDevice(a, b backend.Device) bool {
	a.Peaks, b.Peaks = nil, nil
	return a == b
}

// describeDevice reports the device's capabilities to the recorder.
func describeDevice(p *record.Core, d *record.Device) {
	defer p.Guard("recorder's list of devices")
	if c, ok := p.Recorder.(interface{ SetDevice(report.Device) }); ok {
		c.SetDevice(report.Device{
			Ordinal: d.Info.Ordinal, ID: d.Info.UUID, Model: d.Info.Model,
			Floor: time.Duration(d.Floor.Load()), Peaks: peaksOf(d.Info),
		})
	}
}

// peaksOf returns the limits from the backend, otherwise the limits of the driver's model name. MIG instances have none
// here: this process does not know which part of the device they are.
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

// measureFloor measures the GPU duration of an empty section on an idle stream, the median of several: two events with
// nothing in between. The half width of the last one is what most sections will have.
func measureFloor(d *record.Device, b backend.Backend) {
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
	d.Floor.Store(int64(runs[len(runs)/2]))
	if stamps, ok := d.Anchorer.Read(ev[0], ev[1], 0, 0); ok {
		d.UsualHalf.Store(UsualHalf(d.Anchorer.Place(&stamps).HalfWidth))
	}
}
