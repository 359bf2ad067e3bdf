// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// MoveKey identifies what moves bytes, and for which caller.
type MoveKey struct {
	Move         timeline.Move
	Name, Caller uint32
	Kernel       bool // name is a kernel's, otherwise an operator's
}

// Moved is the time of kernels that move bytes.
type Moved struct {
	Count int64
	Alone time.Duration
}

func (d *Device) moves(a *timeline.Activity) *Moved {
	k := MoveKey{a.Moves, a.Mover, a.Caller, false}
	if k.Name == 0 {
		k.Name, k.Kernel = a.Name, true
	}
	m := boundedmap.Bounded(d.Moved, k, MoveKey{Move: a.Moves}, maxClasses)
	m.Count++
	return m
}
