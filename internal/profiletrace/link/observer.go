// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import "github.com/otelgpu/otelgpu/internal/profiletrace/event"

// Observer gets what a sweep links, whatever the visitor keeps of it. Its methods are called by one
// goroutine, but not necessarily by the goroutine of the visitor's output: an observer must not use
// the caches of the input.
type Observer interface {
	// Range is called for every host range, by start. The record is valid during the call.
	Range(r *event.Record)
	// Activity is called for every activity of a device, by start. It is valid during the call.
	Activity(a *Activity)
	// Step is called for every step, when it is complete.
	Step(st *Step)
}

// Observe sets the observer of an analysis; nil for none.
func (s *Sweep) Observe(o Observer) { s.observer, s.steps.observer = o, o }

// Observers is several observers as one.
type Observers []Observer

// Range calls all.
func (l Observers) Range(r *event.Record) {
	for _, o := range l {
		o.Range(r)
	}
}

// Activity calls all.
func (l Observers) Activity(a *Activity) {
	for _, o := range l {
		o.Activity(a)
	}
}

// Step calls all.
func (l Observers) Step(st *Step) {
	for _, o := range l {
		o.Step(st)
	}
}
