// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finite"
	"github.com/otelgpu/otelgpu/internal/gputime"
	"github.com/otelgpu/otelgpu/semconv"
)

// facts are what a span says of itself, read in one pass over its attributes. Numbers that are not stated, not
// finite or not above 0 are 0; delays may be negative and have a flag instead.
type facts struct {
	kind                                string // gpu.operation.type; empty: not a GPU span
	category                            string
	status, source                      string // of timing
	precision, direction, collective    string
	id, parent, model                   string
	elapsed                             float64 // end − start, s; 0 where the times are not believed
	duration                            float64 // gpu.duration, s
	timingError                         float64 // s
	endDelay                            float64 // s
	floor                               float64 // of an empty section, s
	size, read, write, flops, items     float64
	hit                                 float64 // declared L2 hit ratio, 0 to 1
	group                               float64 // ranks of the collective
	stepDuration, stepItems, modelFLOPs float64
	devices                             float64
	hasEndDelay, hasFloor, hasCovered   bool
}

// load fills f from a span.
func (f *facts) load(s ptrace.Span) {
	*f = facts{elapsed: gputime.Elapsed(uint64(s.StartTimestamp()), uint64(s.EndTimestamp()))}
	for k, v := range s.Attributes().All() {
		switch k {
		case string(semconv.GPUOperationTypeKey):
			f.kind = v.Str()
		case string(semconv.GPUOperationCategoryKey):
			f.category = v.Str()
		case string(semconv.GPUTimingStatusKey):
			f.status = v.Str()
		case string(semconv.GPUTimingSourceKey):
			f.source = v.Str()
		case string(semconv.GPUTimingErrorKey):
			f.timingError = finite.Positive(v)
		case string(semconv.GPUDurationKey):
			f.duration = finite.Positive(v)
		case string(semconv.GPUEndDelayKey):
			f.endDelay, f.hasEndDelay = finite.Number(v)
		case string(semconv.GPUFloorDurationKey):
			f.floor, f.hasFloor = finite.Number(v)
			f.hasFloor = f.hasFloor && f.floor >= 0
		case string(semconv.GPUIOSizeKey):
			f.size = finite.Positive(v)
		case string(semconv.GPUIOReadSizeKey):
			f.read = finite.Positive(v)
		case string(semconv.GPUIOWriteSizeKey):
			f.write = finite.Positive(v)
		case string(semconv.GPUFLOPCountKey):
			f.flops = finite.Positive(v)
		case string(semconv.GPUFLOPPrecisionKey):
			f.precision = v.Str()
		case string(semconv.GPUOperationItemsKey):
			f.items = finite.Positive(v)
		case string(semconv.GPUCopyDirectionKey):
			f.direction = v.Str()
		case string(semconv.GPUCollectiveNameKey):
			f.collective = v.Str()
		case string(semconv.GPUCollectiveGroupSizeKey):
			f.group = finite.Positive(v)
		case string(semconv.GPUCacheL2HitRatioKey):
			f.hit = finite.Positive(v)
		case string(semconv.GPUStepDurationKey):
			f.stepDuration = finite.Positive(v)
		case string(semconv.GPUStepItemsKey):
			f.stepItems = finite.Positive(v)
		case string(semconv.GPUStepModelFLOPCountKey):
			f.modelFLOPs = finite.Positive(v)
		case string(semconv.GPUStepDeviceCountKey):
			f.devices = finite.Positive(v)
		case string(semconv.GPUStepCoveredDurationKey):
			f.hasCovered = true
		case string(semconv.HWIDKey):
			f.id = v.Str()
		case string(semconv.HWParentKey):
			f.parent = v.Str()
		case string(semconv.HWModelKey):
			f.model = v.Str()
		}
	}
	if f.size == 0 {
		f.size = f.read + f.write
	}
	if f.hit > 1 {
		f.hit = 0 // not a ratio: not believed
	}
}
