// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/errreport"
	"github.com/otelgpu/otelgpu/gpuspan/internal/hostclock"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Core is the state shared by a profiler's goroutines: its settings, its clock, its lists, and its counts. Lists are
// read by any goroutine and grow under the mutex; counts are atomic.
type Core struct {
	Cfg        Config
	Backend    backend.Backend // nil: host times only
	SourceName string          // gpu.timing.source
	Clock      *hostclock.Clock
	Errors     errreport.Reporter
	Scope      *Scope // of spans without a device
	Recorder   report.Recorder
	TimeAll    bool        // sections of unsampled parents are timed too
	refused    atomic.Bool // the provider does not use cfg.ids

	// MetricsEmitted reports whether the metrics of sections leave the process at present.
	MetricsEmitted func() bool

	Switch

	Loops atomic.Int32 // running loops: sections search for their step only while there are any

	Mu         sync.Mutex
	Ops        atomic.Pointer[[]*OpState] // by Operation.id
	OpList     shared[*OpState]           // in order of registration
	Positions  shared[*Position]          // of sections within others, parents first
	opCount    int
	overflow   *OpState
	StreamList shared[*Stream]
	DeviceList shared[*Device]
	Names      names // of StartNamed
	Phases     names
	Steps      names // of loops

	Drops    [DropReasons]atomic.Int64
	Statuses [timingStatuses]atomic.Int64
	Misuses  misuse

	LostLinks atomic.Int64 // requests to which their batches' spans do not link

	Polling   polling
	Exporting exporting
}

// exporting holds the signals between the polling thread and the exporting goroutine.
type exporting struct {
	Untimed atomic.Bool   // untimed sections are pending for the report
	Since   atomic.Int64  // hostClock when the work on a nest started; 0: idle
	Wakeups chan struct{} // holds one
}

func (e *exporting) Wake() { wakeUp(e.Wakeups) }

// polling holds the signals between callers and the polling thread.
type polling struct {
	Idle    atomic.Bool   // the thread sleeps until woken
	Passed  atomic.Int64  // hostClock when its last pass started
	CPUNs   atomic.Int64  // processor time of the thread as of the last second
	Wakeups chan struct{} // holds one
}

func (p *polling) Wake() { wakeUp(p.Wakeups) }

// wakeUp wakes a goroutine that waits for the channel, now or next.
func wakeUp(wakeups chan<- struct{}) {
	select {
	case wakeups <- struct{}{}:
	default:
	}
}

// dropReason is why a section has no times (gpuspan.drop.reason).
type dropReason uint8

const (
	DropPoolFull dropReason = iota
	DropNestLimit
	DropTimeout
	DropShutdown
	DropDeviceError
	DropCaptured
	DropReasons
)

func (p *Core) Drop(r dropReason) { p.Drops[r].Add(1) }

// Meet queries the backend's name and its clock. Without a backend, or if it panics, times are the host's.
func (p *Core) Meet(b backend.Backend) (err error) {
	p.SourceName, p.Clock = SourceHost, hostclock.New(time.Now)
	if b == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("no device can be timed, sections get host times only: the backend panicked: %v", r)
		}
	}()
	clock, name := hostclock.New(b.Now), b.Name()
	p.Backend, p.Clock, p.SourceName = b, clock, name
	return nil
}

// Log writes a line; the logger is the application's.
func (p *Core) Log(level slog.Level, text string, attrs ...slog.Attr) {
	defer p.Guard("a line was logged")
	p.Cfg.Logger.LogAttrs(context.Background(), level, text, attrs...)
}

func (p *Core) Source() string {
	if p == nil {
		return ""
	}
	return p.SourceName
}

func (p *Core) Devices() []backend.Device {
	if p == nil {
		return nil
	}
	var out []backend.Device
	for _, d := range p.DeviceList.All() {
		out = append(out, d.Info)
	}
	return out
}

func (p *Core) Untimed(o *Operation) Section {
	st := p.known(o)
	if st == nil {
		st = p.register(o)
	}
	return st.Outermost.run(p)
}
