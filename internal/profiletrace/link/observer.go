// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import "github.com/otelgpu/otelgpu/internal/profiletrace/event"

// Activity is a device event during the sweep.
type Activity struct {
	Kind           event.Kind
	Seq            uint32
	Start, End     int64
	Duration       int64
	Name           uint32
	Correlation    int64
	Device, Stream int64
	Communicates   bool
	Detail         event.Detail
	Launch         launch
	HasLaunch      bool
	Within         uint32 // annotation or module around that; 0: none, or unknown
	Replayed       bool   // launch states the node of a graph with a known capture
}

// Visitor is the purpose of a sweep: finding captures, choosing spans, or writing them.
type Visitor interface {
	// Range is called for every host range in order, with the node around it and the number of
	// operators around it. It returns the node of the range if the range is kept, otherwise nil.
	Range(r *event.Record, above *Node, depth int, p *Process, st *Step) *Node
	// Activity is called for every activity of a device, with the node above it.
	Activity(a *Activity, above *Node, p *Process)
}

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
