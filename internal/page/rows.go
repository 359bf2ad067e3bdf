// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	activities "github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// rows is the observer of a profile that draws its activities on rows of streams, and calls that
// launch work or wait for it on rows of threads.
type rows struct {
	in       *link.Input
	timeline *timeline
	tracks   []event.Track
	names    []rowName
	host     hostTimes
}

// rowName is what rows show of a name, found when it is needed.
type rowName struct {
	full, kernel string
	usesDevice   bool // of a call
	class        int  // likewise
}

func (r *rows) name(id uint32) *rowName {
	n := &r.names[id]
	if n.full == "" {
		name := r.in.Names.Name(id)
		n.full, n.usesDevice = spanfacts.DistinctText(name, spanfacts.MaxText), vocabulary.UsesDevice(name)
		n.kernel = spanfacts.DistinctText(r.in.ShortName(id), spanfacts.MaxText)
		if n.class = launching; activities.WaitsForDevice(name) {
			n.class = waiting
		}
	}
	return n
}

func (r *rows) fullName(id uint32) string { return r.name(id).full }

// Range draws a call of the device runtime or driver.
func (r *rows) Range(x *event.Record) {
	r.host.add(x, r.fullName)
	thread := r.tracks[x.Track].Inner
	if x.Kind != event.KindRuntime || thread < 0 {
		return
	}
	if n := r.name(x.Name); n.usesDevice {
		r.add(rowKey{stream: thread, host: true}, x.Start(), x.Duration, n.class, n.full)
	}
}

// Activity draws an activity.
func (r *rows) Activity(a *link.Activity) {
	n, class := r.name(a.Name), computing
	name := n.kernel
	switch {
	case a.Communicates:
		class = communicating
	case a.Kind == event.KindCopy:
		name, class = n.full, copying
	case a.Kind == event.KindMemset:
		name, class = n.full, setting
	case a.Detail.WholeGraph:
		name = n.full
	}
	r.add(rowKey{device: a.Device, stream: a.Stream}, a.Start, a.Duration, class, name)
}

// Step does nothing.
func (*rows) Step(*link.Step) {}

func (r *rows) add(key rowKey, start, length int64, class int, name string) {
	start += r.in.Meta.Base
	r.timeline.add(key, start, start+length, class, name)
}
