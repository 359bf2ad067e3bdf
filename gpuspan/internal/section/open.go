// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/hostclock"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// NewCore returns the state of a profiler over a backend, which may be nil. An error means that
// settings are invalid or that no device can be timed; the profiler is usable nevertheless.
func NewCore(b backend.Backend, opts ...func(*Config)) (*Core, error) {
	set, err := settings.FromEnv()
	errs := []error{err}
	c := Config{Settings: set}
	for _, o := range opts {
		o(&c)
	}
	if err := c.Validate(); err != nil {
		errs = append(errs, err)
		c.Settings = c.Valid()
	}
	c.fill()
	p := &Core{
		Cfg: c, timeAll: c.Metrics == settings.MetricsAll, switchedOn: c.Enabled, verbosity: c.Verbosity,
		polling: make(chan struct{}, 1), exporting: make(chan struct{}, 1),
	}
	p.Errors.Handle = c.OnError
	if c.Annotator != nil && !p.listens() {
		p.Cfg.Annotator = nil
	}
	p.ops.states.Store(&[]*OpState{})
	p.names.init(c.Names, p.newNamed)
	p.phases.init(MaxPhases, newPhaseOperation)
	p.steps.init(c.Names, newStepOperation)
	p.setLevel()
	p.scope = p.newScope(func() []attribute.KeyValue { return nil })
	errs = append(errs, p.open(b))
	if c.Report {
		now := func() time.Time { return time.Unix(0, p.Clock.Wall(p.Clock.Now())) }
		p.Recorder = statistics.New(now, c.ReportOptions).(Statistics)
	}
	return p, errors.Join(errs...)
}

// open queries the backend's name and clock, and lists its devices. Without any, times are the
// host's.
func (p *Core) open(b backend.Backend) error {
	p.source, p.Clock = SourceHost, hostclock.New(time.Now)
	if b == nil {
		p.Log(slog.LevelInfo, "gpuspan: no backend, sections get host times only")
		return nil
	}
	var infos []backend.Device
	if !claim(b) {
		return fmt.Errorf("no device can be timed, sections get host times only: %w", errOwned)
	}
	clock, name, err := meet(b)
	if err == nil {
		p.Clock = clock
		infos, err = openDevices(p, b)
	} else {
		closeBackend(p, b)
	}
	if err != nil {
		p.Log(slog.LevelWarn, "gpuspan: no device can be timed, sections get host times only", slog.Any("error", err))
		return fmt.Errorf("no device can be timed, sections get host times only: %w", err)
	}
	p.backend, p.source = b, name
	for _, info := range infos {
		p.deviceList.add(p.newDevice(info))
	}
	return nil
}

// meet queries the backend's name and its clock.
func meet(b backend.Backend) (clock *hostclock.Clock, name string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the backend panicked: %v", r)
		}
	}()
	return hostclock.New(b.Now), b.Name(), nil
}

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

// claim makes the backend the profiler's; false if another one has it. A value that cannot be
// compared is not shared.
func claim(b backend.Backend) bool {
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

func closeBackend(p *Core, b backend.Backend) {
	defer p.Guard("the backend was closed")
	if reflect.TypeOf(b).Comparable() {
		defer owned.Delete(b)
	}
	if err := b.Close(); err != nil {
		p.Errors.Report("close", fmt.Errorf("cannot close the backend: %w", err))
	}
}

// currentContext returns the calling OS thread's context. Errors of the driver appear again when
// the stream is resolved.
func currentContext(p *Core) (c backend.Context) {
	defer p.Guard("current context")
	c, _ = p.backend.Current()
	return c
}
