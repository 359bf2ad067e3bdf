// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// Builder builds a [Row] from the attributes of a span, for any span API. The zero Builder is ready
// to use.
type Builder struct {
	row     Row
	step    bool
	length  bool
	overlap bool
	other   bool
}

// String adds a string attribute.
func (b *Builder) String(key, value string) {
	if key == string(semconv.GPUOperationTypeKey) {
		b.step = value == semconv.GPUOperationTypeStep
	}
}

// Int adds an integer attribute.
func (b *Builder) Int(key string, value int64) {
	switch key {
	case string(semconv.GPUStepIndexKey):
		b.row.Step = value
	case string(semconv.GPUStepEpochKey):
		b.row.Epoch, b.row.HasEpoch = value, true
	case string(semconv.GPUStepItemsKey):
		b.row.Items = value
	default:
		b.Float(key, float64(value)) // a duration without fraction
	}
}

// Float adds a floating-point attribute. Invalid durations (negative, NaN) are ignored.
func (b *Builder) Float(key string, value float64) {
	d, ok := duration(value)
	if !ok {
		return
	}
	switch key {
	case string(semconv.GPUStepDurationKey):
		b.row.Duration, b.length = d, true
	case string(semconv.GPUStepOverlapDurationKey):
		b.row.Overlap, b.overlap = d, true
	case string(semconv.GPUStepOtherDurationKey):
		b.row.Other, b.other = d, true
	default:
		if name, ok := semconv.GPUStepPhaseDurationOf(key); ok {
			b.row.Phases = append(b.row.Phases, Phase{name, d})
		}
	}
}

// Row returns the row, and false if the span is not a step or its duration is unknown.
func (b *Builder) Row() (Row, bool) {
	b.row.HasSplit = b.overlap && b.other
	slices.SortStableFunc(b.row.Phases, func(x, y Phase) int { return cmp.Compare(x.Name, y.Name) })
	return b.row, b.step && b.length
}

// duration reads seconds. A double holds nanoseconds exactly up to 104 days.
func duration(seconds float64) (time.Duration, bool) {
	ns := math.Round(seconds * 1e9)
	if !(ns >= 0 && ns < math.MaxInt64/2) { // not for NaN either
		return 0, false
	}
	return time.Duration(ns), true
}
