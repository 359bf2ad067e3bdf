// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// kernelOf is a kernel below an operator, by names.
type kernelOf struct{ kernel, operator, mover uint32 }

// maxMeanings bounds the cached meanings; beyond it each is computed again.
const maxMeanings = 1 << 16

// meaning is the purpose of a kernel.
type meaning struct {
	move timeline.Move
	role timeline.Role
	maps bool // computes each element of the result by the same elements of the inputs
}

// means returns what kind of bytes a kernel moves, if it does nothing else: by the outermost
// operator with that purpose, otherwise by its own name; and its role in attention, by its operator
// or its own name.
func (s *Sweep) means(a *Activity) meaning {
	k := kernelOf{a.Name, a.Launch.Op, a.Launch.mover}
	m, ok := s.meanings[k]
	if !ok {
		name := s.in.Names.Text
		if m.move = vocabulary.Movers[name(k.operator)]; m.move == timeline.MovesNothing {
			m.move = vocabulary.MoveOf(name(k.kernel))
		}
		if outer := vocabulary.Movers[name(k.mover)]; m.move != timeline.MovesNothing && outer != timeline.MovesNothing {
			m.move = outer
		}
		m.role = vocabulary.RoleOf(name(k.operator), name(k.kernel))
		m.maps = strings.Contains(name(k.kernel), "elementwise_kernel")
		if len(s.meanings) < maxMeanings {
			s.meanings[k] = m
		}
	}
	return m
}
