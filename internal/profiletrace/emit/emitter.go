// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"cmp"
	"context"

	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Config controls which spans are written, and what they state.
type Config struct {
	Detail     Level
	Attributes spanfacts.Level
	MaxSpans   int // of a trace; math.MaxInt: no limit
	MaxBytes   int // likewise
	BatchSpans int
	Resource   map[string]string // overrides the file's resource attributes
	Shapes     bool              // operators have the shapes of their inputs
	Scope      string            // name of the instrumentation scope
	Version    string            // of the instrumentation scope
}

// Emitter turns the nodes and activities of a sweep into spans.
type Emitter struct {
	*link.Input
	Config
	offers *Offers
	sel    *selection
	tracks []event.Track
	root   spanRef         // of a live trace under which the profile hangs
	calls  map[uint32]bool // whether a call becomes a span, by name
	// standIn: operators of depth 0 and 1 replace annotations, since there are none.
	standIn bool
	ids     idSource
	jobIDs  idSource // of this rank; without a job the same
}

// NewEmitter returns an emitter for an input whose Bound was called.
func NewEmitter(in *link.Input, c Config, offers *Offers) (*Emitter, error) {
	e := &Emitter{
		Input: in, Config: c, offers: offers, tracks: in.Tracks(), ids: idsOf(in.Store), calls: map[uint32]bool{},
		standIn: offers.named == 0,
	}
	if in.Meta.TraceParent != "" {
		var err error
		if e.root, err = parseTraceParent(in.Meta.TraceParent); err != nil {
			return nil, err
		}
	}
	if e.jobIDs = e.ids; e.job() != "" && in.Meta.HasRank {
		e.jobIDs = jobIDs(e.job(), in.Meta.Rank)
	}
	e.sel = e.newSelection()
	return e, nil
}

func (p *Emitter) job() string { return cmp.Or(p.Meta.JobID, p.JobID) }

// Select chooses the spans that the limits allow, if there may be more.
func (p *Emitter) Select(ctx context.Context) error {
	if !p.sel.limited() || p.surelyFits(p.sel) {
		return nil
	}
	return p.NewSweep(p.sel).Run(ctx)
}

// Writer returns the visitor that writes the spans.
func (p *Emitter) Writer(ctx context.Context, emit consumer.ConsumeTracesFunc) *Writer {
	return &Writer{p: p, sel: p.sel, out: newSpans(ctx, p, emit)}
}
