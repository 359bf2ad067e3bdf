// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"bytes"
	"cmp"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// kind is the role of a span in this connector.
type kind uint8

const (
	hostSpan    kind = iota // no GPU work, or a usage record written earlier
	gpuWork                 // GPU work
	leafWork                // likewise, of a kind that has no children: kernels, copies, memsets
	windowWork              // likewise, seen in a capture window as part of what a live trace shows as a whole
	stepWork                // likewise, one iteration of a loop
	requestSpan             // timed on the host while a request occupies a device
)

// key names a span.
type key = spanfacts.Key

func less(a, b key) bool {
	return cmp.Or(bytes.Compare(a.Trace[:], b.Trace[:]), bytes.Compare(a.Span[:], b.Span[:])) < 0
}

// span holds the values of a span that this connector needs. Unstated numbers are 0.
type span struct {
	seenSpan
	end uint64

	operation

	usage
	batchSize float64

	// Set by nest.
	outer  int     // the batch around it in the payload, −1: none
	nested bool    // its energy was counted with the span around it
	rest   float64 // if nested, J of it that were not
	waited []key   // requests inside that waited for it
	paid   float64 // J of batches within it that were charged before it arrived
	done   bool    // charged or waiting: nothing is subtracted from it any more

	process uint64 // 0 without a rank

	source *source     // whose span it is
	links  ptrace.Span // of a batch: itself
}

// home returns the process by which the span is known: batches and children may be of other
// processes than requests and the host spans around them.
func (s *span) home() uint64 {
	if s.kind == hostSpan || s.kind == requestSpan {
		return 0
	}
	return s.process
}

// load fills s from x and its facts.
func (s *span) load(x ptrace.Span, f *spanfacts.Facts) {
	*s = span{
		seenSpan: seenSpan{
			key: f.Key, parent: f.Parent, start: f.Start, model: f.RequestModel, device: f.Device.ID,
			entry: x.Kind() == ptrace.SpanKindServer || x.Kind() == ptrace.SpanKindConsumer,
			queue: f.Queue, firstItem: f.TimeToFirstItem, prefill: f.Prefill, decode: f.Decode,
		},
		end:       f.End,
		operation: operation{f.Name, f.Category, f.ItemType, f.RequestModel},
		usage: usage{
			time: f.Time, energy: f.Energy, coverage: f.Coverage, items: f.Items, upper: f.UpperBound,
		},
		batchSize: f.BatchSize, outer: -1,
	}
	if f.HasSelfEnergy {
		s.self = f.SelfEnergy
		s.inner = max(0, s.energy-s.self)
	}
	switch f.Kind {
	case spanfacts.None, spanfacts.Share, spanfacts.Host:
		return
	case spanfacts.Request:
		s.kind, s.energy = requestSpan, f.SelfEnergy // work inside it has its own usage record
		return
	case spanfacts.Kernel, spanfacts.Copy, spanfacts.Memset:
		if s.kind = leafWork; f.InWindow {
			s.kind = windowWork
			return // its links are no batch links
		}
	case spanfacts.Step:
		s.kind, s.time = stepWork, f.StepTime()
	default:
		s.kind = gpuWork
	}
	if spanfacts.Batch(x) {
		s.batch, s.links = true, x
	}
}

// work reports whether the span is GPU work.
func (s *span) work() bool { return s.kind >= gpuWork && s.kind <= stepWork }

// adopted reports whether a request's usage record includes it. Steps serve no request, and a
// window is a sample of what the live spans show as a whole.
func (k kind) adopted() bool { return k != stepWork && k != windowWork }

// usage is what GPU work used, and processed. Unstated numbers are 0.
type usage struct {
	time     float64 // on the device, s
	energy   float64 // J, with its descendants on its device; of a requestSpan without
	self     float64 // J, without them, if stated
	coverage float64 // part of the time to which the energy belongs
	items    float64
	upper    bool // the energy is an upper bound

	innerTime, innerEnergy float64 // s and J of batches within it
}

// debt returns the time and the energy on a device that belong to no batch within.
func (u *usage) debt(device string) debt {
	return debt{device, max(0, u.time-u.innerTime), max(u.self, u.energy-u.innerEnergy), false}
}

// leastRest is the part of a span's energy that is rounding.
const leastRest = 1e-9

// claim takes the energy of a descendant from what the span states of its descendants, and returns
// the rest, which is not part of the span: it had no energy itself, or it was released before the
// descendant arrived.
func (s *seenSpan) claim(energy float64) (rest float64) {
	part := min(energy, s.inner)
	s.inner -= part
	if rest = energy - part; rest <= leastRest*energy {
		return 0
	}
	return rest
}

// seenSpan is what is kept of a span.
type seenSpan struct {
	key
	parent  pcommon.SpanID
	start   uint64 // unix ns
	model   string
	device  string // hw.id
	kind    kind
	entry   bool // of kind server or consumer
	batch   bool
	counted bool // GPU work without links that was assigned to a request or left unattributed

	inner float64 // J of descendants that the span's energy includes and that have not arrived

	queue, firstItem, prefill, decode float64 // as stated by the engine, s
}

// above returns the span above.
func (s *seenSpan) above() key { return key{Trace: s.Trace, Span: s.parent} }
