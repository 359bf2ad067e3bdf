// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"sync"
	"time"
)

// Clock is the host's time as the simulation sees it. Sleep waits for d of that time.
type Clock interface {
	Now() time.Time
	Sleep(d time.Duration)
}

type realClock struct{ base time.Time }

// Now keeps the monotonic reading of the base, so that a step of the wall clock does not reach the device.
func (c realClock) Now() time.Time        { return c.base.Add(time.Since(c.base)) }
func (c realClock) Sleep(d time.Duration) { time.Sleep(d) }

// readCost is what a reading of a manual clock takes by default, of the size of a real one. It keeps code that
// polls until a time has come from polling for ever.
const readCost = 40 * time.Nanosecond

// ManualClock moves when it is told to, and by a little at each reading.
type ManualClock struct {
	mu   sync.Mutex
	now  time.Time
	step time.Duration
}

// NewManualClock starts at the given time; a reading takes 40 ns.
func NewManualClock(start time.Time) *ManualClock { return &ManualClock{now: start, step: readCost} }

// SetStep sets what a reading takes; 0 makes the clock stand still between calls of Advance and Sleep.
func (c *ManualClock) SetStep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step = max(d, 0)
}

// Now moves the clock by the step and reads it.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(c.step)
	return c.now
}

// Advance moves the clock forward; a negative d does nothing.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(max(d, 0))
}

// Sleep advances the clock by d.
func (c *ManualClock) Sleep(d time.Duration) { c.Advance(d) }
