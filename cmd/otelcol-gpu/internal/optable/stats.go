// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package optable

import (
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
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

// facts is what the table reads of one span.
type facts struct {
	key      key
	seconds  float64
	bytes    float64
	flops    float64
	roof     float64
	joules   float64
	hasRoof  bool
	hasJ     bool
	bound    string
	floor    bool
	items    int64
	itemType string
	mfu      float64
	gpu      bool
}

func read(span ptrace.Span) facts {
	f := facts{key: key{name: span.Name()}, seconds: math.NaN()}
	var ioUse, flopUse float64
	var hasIO, hasFLOP bool
	span.Attributes().Range(func(name string, v pcommon.Value) bool {
		switch name {
		case string(semconv.GPUOperationTypeKey):
			f.gpu, f.key.kind = true, v.Str()
		case string(semconv.GPUOperationCategoryKey):
			f.key.category = v.Str()
		case string(semconv.GPUDurationKey), string(semconv.GPUStepDurationKey):
			f.seconds = v.Double()
		case string(semconv.GPUIOSizeKey):
			f.bytes = float64(v.Int())
		case string(semconv.GPUFLOPCountKey):
			f.flops = v.Double()
		case string(semconv.GPURooflineUtilizationKey):
			f.roof, f.hasRoof = v.Double(), true
		case string(semconv.GPUIOUtilizationKey):
			ioUse, hasIO = v.Double(), true
		case string(semconv.GPUFLOPUtilizationKey):
			flopUse, hasFLOP = v.Double(), true
		case string(semconv.GPURooflineBoundKey):
			f.bound = v.Str()
		case string(semconv.GPURateStatusKey):
			f.floor = v.Str() == semconv.GPURateStatusBelowFloor
		case string(semconv.GPUEnergyKey):
			f.joules, f.hasJ = v.Double(), true
		case string(semconv.GPUOperationItemsKey), string(semconv.GPUStepItemsKey):
			f.items = v.Int()
		case string(semconv.GPUOperationItemTypeKey), string(semconv.GPUStepItemTypeKey):
			f.itemType = v.Str()
		case string(semconv.GPUStepMFUKey):
			f.mfu = v.Double()
		}
		return true
	})
	if f.key.kind == semconv.GPUOperationTypeStep { // profilers number the names of steps: ProfilerStep#7
		f.key.name, _, _ = strings.Cut(f.key.name, "#")
	}
	if !f.hasRoof && (hasIO || hasFLOP) {
		f.roof, f.hasRoof = math.Max(ioUse, flopUse), true
	}
	if math.IsNaN(f.seconds) { // a producer without GPU time: the span's own
		f.seconds = math.Max(0, float64(span.EndTimestamp())-float64(span.StartTimestamp())) * 1e-9
	}
	return f
}

func (s *stats) add(f facts) {
	s.count++
	s.seconds += f.seconds
	if f.bytes > 0 {
		s.bytes += f.bytes
		s.byteSeconds += f.seconds
	}
	if f.flops > 0 {
		s.flops += f.flops
		s.flopSeconds += f.seconds
	}
	if f.hasRoof {
		s.roof += f.roof * f.seconds
		s.roofSeconds += f.seconds
	}
	if f.hasJ {
		s.joules += f.joules
		s.hasJoules = true
	}
	if f.bound != "" {
		if s.bounds == nil {
			s.bounds = map[string]float64{}
		}
		s.bounds[f.bound] += f.seconds
	}
	if f.floor {
		s.belowFloor++
	}
	s.items += f.items
	if f.itemType != "" {
		s.itemType = f.itemType
	}
	if f.mfu > 0 {
		s.mfu += f.mfu * f.seconds
		s.mfuWeight += f.seconds
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
