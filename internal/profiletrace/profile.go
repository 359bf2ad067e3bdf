// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
)

// Source names the instrumentation scope, root span and service of a profile's spans.
type Source struct {
	Scope   string // name of the instrumentation scope
	Root    string // name of the span of the window
	Service string // service.name if neither the file nor the options state one
	// Recording is how long the profiler keeps the host for each event that it records. Zero: not
	// known.
	Recording link.Recording
}

// Profile collects the events of one file. It is not safe for concurrent use.
type Profile struct {
	link.Input

	opts   Options
	source Source
	offers emit.Offers
}

// New starts a profile. Close must be called.
func New(o Options, s Source) *Profile {
	if o.BatchSpans <= 0 {
		o.BatchSpans = defaultBatch
	}
	return &Profile{
		Input: link.Input{
			Store:     event.NewStore(event.Limits{Events: o.MaxEvents, Memory: o.MemoryLimit(), Dir: o.TempDir}),
			Recording: s.Recording, Extent: o.Extent, Paths: o.Paths, Device: o.Device,
			Service: cmp.Or(o.ServiceName, s.Service), JobID: o.JobID, Root: s.Root,
		},
		opts: o, source: s,
	}
}

// SetSource replaces the source where the file's first bytes tell the profiler. A service name that
// was set stays.
func (p *Profile) SetSource(s Source) {
	if p.Service == p.source.Service {
		p.Service = s.Service
	}
	p.source, p.Root, p.Recording = s, s.Root, s.Recording
}

// Add adds one event. An event that cannot be added is skipped; an error ends the profile.
func (p *Profile) Add(e *event.Event) error {
	p.offers.Add(e, &p.Input, p.opts.Detail)
	return p.Store.Add(e)
}
