// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// trials holds operators that launch kernels of many names in some calls, and of few in most: a
// library is timing which kernel is the fastest. The zero value is empty.
type trials map[uint32]*Trial

// Trial holds the calls of one operator: calls with few names of kernels, and calls with many.
type Trial struct {
	now opCall
	// Tried is set for a frame in which kernels are compared: all its calls are in Many.
	Tried bool
	Few   called
	Many  called
}

// called sums up calls.
type called struct {
	Calls, Kernels, Time int64
	Idle                 Spending // before their kernels
}

// opCall is a call whose kernels are being counted.
type opCall struct {
	at            int64 // its start
	kernels, time int64
	names         []uint32 // different ones, at most manyNames
	idle          []timeline.Share
}

// Limits for recognizing autotuning.
const (
	manyNames = semconv.FindingAutotuningNames // of kernels in one call
	// UsualCalls is the factor by which calls with few names must outnumber the others.
	UsualCalls  = semconv.FindingAutotuningCalls
	maxOfTrial  = 64 // idle times kept per call; further ones stay with their cause
	maxSearched = 1 << 10
)

// launched counts a kernel.
func (t trials) launched(a *timeline.Activity) {
	if x := t.of(a); x != nil {
		c := &x.now
		c.kernels++
		c.time += a.End - a.Start
		if len(c.names) < manyNames && !slices.Contains(c.names, a.Name) {
			c.names = append(c.names, a.Name)
		}
	}
}

// idle takes idle time that ended with a kernel.
func (t trials) idle(a *timeline.Activity, s timeline.Share) {
	if x := t.of(a); x != nil && len(x.now.idle) < maxOfTrial {
		x.now.idle = append(x.now.idle, s)
	}
}

// of returns the trial of the operator that launched the activity, after starting its call.
func (t trials) of(a *timeline.Activity) *Trial {
	if a.Inner == 0 || a.Class != timeline.Computing {
		return nil
	}
	x := t[a.Inner]
	if x == nil {
		if len(t) >= maxSearched {
			return nil
		}
		x = &Trial{now: opCall{at: a.InnerStart}, Tried: a.Tried}
		t[a.Inner] = x
	}
	if x.now.at != a.InnerStart {
		x.end()
		x.now.at = a.InnerStart
	}
	return x
}

// end sums up the call.
func (t *Trial) end() {
	c := &t.now
	to := &t.Few
	if t.Tried || len(c.names) >= manyNames {
		to = &t.Many
		for _, s := range c.idle {
			if s.Cause != timeline.CauseLoader && s.Cause != timeline.CauseProfiler && s.Cause != timeline.CausePeer {
				to.Idle.Idle(s)
			}
		}
	}
	to.Calls++
	to.Kernels += c.kernels
	to.Time += c.time
	*c = opCall{names: c.names[:0], idle: c.idle[:0]}
}
