// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Switch is whether a profiler times anything, and how much.
type Switch struct {
	Level   atomic.Int32 // verbosity in force; VerbosityOff while disabled
	Stopped atomic.Bool

	mu         sync.Mutex
	SwitchedOn bool               // the last call of SetEnabled,
	Verbosity  settings.Verbosity // and SetVerbosity
}

func (w *Switch) SetEnabled(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.SwitchedOn = on
	w.SetLevel()
}

func (w *Switch) SetVerbosity(v settings.Verbosity) {
	if v < settings.VerbosityOff || v > settings.VerbosityDebug {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Verbosity = v
	w.SetLevel()
}

// SetLevel applies the last settings. The mutex must be held.
func (w *Switch) SetLevel() {
	level := settings.VerbosityOff
	if w.SwitchedOn && !w.Stopped.Load() {
		level = w.Verbosity
	}
	w.Level.Store(int32(level))
}

func (w *Switch) Enabled() bool { return w.Level.Load() > int32(settings.VerbosityOff) }
