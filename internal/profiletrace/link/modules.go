// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// The backward pass of PyTorch runs on threads without modules around it. Each of its functions
// states the number of the operator whose gradient it computes ("Sequence number"), so that it
// belongs to the module of that operator.

// forwards holds the modules of operators by their numbers, about the latest ones.
type forwards struct{ list []forward }

type forward struct {
	number        int64
	track, module uint32
}

const maxForwards = 1 << 17 // operators of a forward pass, which the backward pass follows

// put adds an operator of a thread. If several state one number, the last computes the gradient:
// the number is what the next gradient gets, so an operator without a gradient, as zero_ in
// zero_grad, comes first. An operator outside of modules only replaces another one of its thread,
// because each thread counts on its own.
func (f *forwards) put(number int64, track, module uint32) {
	if module == 0 && (f.list == nil || !f.list[number&(maxForwards-1)].is(number, track)) {
		return
	}
	if f.list == nil {
		f.list = make([]forward, maxForwards)
	}
	f.list[number&(maxForwards-1)] = forward{number, track, module}
}

func (f *forward) is(number int64, track uint32) bool { return f.number == number && f.track == track }

func (f *forwards) get(number int64) uint32 {
	if f.list == nil || f.list[number&(maxForwards-1)].number != number {
		return 0
	}
	return f.list[number&(maxForwards-1)].module
}

// module sets in which module the contents of the range are, in the tree of modules and
// annotations.
func (s *Sweep) module(r *event.Record, f *frame, fl *vocabulary.Meaning) {
	switch {
	case r.Kind == event.KindModule, r.Kind == event.KindAnnotation:
		f.module = s.modules.Enter(f.module, r.Name, s.in.Names.Name)
	case r.Kind != event.KindOperator || r.Correlation == 0:
	case fl.Backward:
		if module := s.forwards.get(r.Correlation); module != 0 {
			f.module, f.backward = module, true
		}
	case !f.backward:
		s.forwards.put(r.Correlation, r.Track, f.module)
	}
}
