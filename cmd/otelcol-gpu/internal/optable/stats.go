// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package optable

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// key tells operations apart: one name may be a section in one service and a kernel in another.
type key struct{ name, kind, category string }

// stats sums the spans of one operation.
type stats struct {
	count   int64
	seconds float64 // gpu.duration

	bytes, byteSeconds float64 // of spans that state bytes, and their time
	flops, flopSeconds float64
	roof, roofSeconds  float64 // time-weighted gpu.roofline.utilization (or the one utilisation that is known)
	joules             float64
	hasJoules          bool
	bounds             map[string]float64 // seconds by gpu.roofline.bound
	belowFloor         int64

	items     int64
	itemType  string
	mfu       float64
	mfuWeight float64
}

// keyOf is the operation of a span. Profilers number the names of steps: ProfilerStep#7.
func keyOf(span ptrace.Span, f *spanfacts.Facts) key {
	name := span.Name()
	if f.Kind == spanfacts.Step {
		name, _, _ = strings.Cut(name, "#")
	}
	return key{name, f.Type, f.Category}
}

// secondsOf is the GPU time of a span.
func secondsOf(f *spanfacts.Facts) float64 {
	if f.Kind == spanfacts.Step {
		return f.StepTime()
	}
	return f.Time
}

func (s *stats) add(f *spanfacts.Facts) {
	seconds := secondsOf(f)
	s.count++
	s.seconds += seconds
	if f.Size > 0 {
		s.bytes += f.Size
		s.byteSeconds += seconds
	}
	if f.FLOPs > 0 {
		s.flops += f.FLOPs
		s.flopSeconds += seconds
	}
	if f.HasRoofline {
		s.roof += f.Roofline * seconds
		s.roofSeconds += seconds
	}
	if f.HasEnergy {
		s.joules += f.Energy
		s.hasJoules = true
	}
	if f.Bound != "" {
		if s.bounds == nil {
			s.bounds = map[string]float64{}
		}
		s.bounds[f.Bound] += seconds
	}
	if f.BelowFloor {
		s.belowFloor++
	}
	items, itemType := f.Items, f.ItemType
	if f.Kind == spanfacts.Step {
		items, itemType = f.StepItems, f.StepItemType
	}
	s.items += int64(items)
	if itemType != "" {
		s.itemType = strings.Clone(itemType) // the batch's memory must not live on
	}
	if f.MFU > 0 {
		s.mfu += f.MFU * seconds
		s.mfuWeight += seconds
	}
}

// bound is what limited most of the operation's time.
func (s *stats) bound() string {
	best, name := 0.0, ""
	for b, seconds := range s.bounds {
		if seconds > best || seconds == best && (name == "" || b < name) {
			best, name = seconds, b
		}
	}
	return name
}
