// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"
)

// Elapsed is gpuspan.Elapsed.
type Elapsed struct {
	done   chan struct{}
	settle sync.Once
	d      time.Duration
	known  bool
}

func newElapsed() *Elapsed { return &Elapsed{done: make(chan struct{})} }

// set says what was measured; the first call counts. A nil Elapsed was not asked for.
func (e *Elapsed) set(d time.Duration, known bool) {
	if e != nil {
		e.settle.Do(func() { e.d, e.known = d, known; close(e.done) })
	}
}

// Done is gpuspan.Elapsed.Done.
func (e *Elapsed) Done() <-chan struct{} {
	if e == nil {
		return closed
	}
	return e.done
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Get is gpuspan.Elapsed.Get.
func (e *Elapsed) Get() (d time.Duration, ok bool) {
	if e == nil {
		return 0, false
	}
	select {
	case <-e.done:
		return e.d, e.known
	default:
		return 0, false
	}
}

// Elapsed is gpuspan.Section.Elapsed.
func (x Section) Elapsed() (e *Elapsed) {
	if x.slot == nil {
		return nil
	}
	x.with(func(extra *extra) {
		if extra.elapsed == nil {
			extra.elapsed = newElapsed()
		}
		e = extra.elapsed
	})
	return e
}

// Elapsed is train.Step.Elapsed.
func (st *Step) Elapsed() (e *Elapsed) {
	st.change(true, func() {
		if !st.timed {
			return
		}
		if st.elapsed == nil {
			st.elapsed = newElapsed()
		}
		e = st.elapsed
	})
	return e
}
