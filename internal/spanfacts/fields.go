// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// read sets the field of one attribute.
func (f *Facts) read(k string, v pcommon.Value) {
	switch attribute.Key(k) {
	case semconv.GPUOperationTypeKey:
		f.Type = Clip(v.Str())
	case semconv.GPUOperationNameKey:
		f.full = v.Str()
	case semconv.GPUOperationCategoryKey:
		f.Category = Clip(v.Str())
	case semconv.GPUStreamIDKey:
		f.Stream = index(v)
	case semconv.GPUDurationKey:
		f.Duration = Positive(v)
	case semconv.GPUTimingStatusKey:
		f.Status = Clip(v.Str())
	case semconv.GPUTimingSourceKey:
		f.Source = Clip(v.Str())
	case semconv.GPUTimingErrorKey:
		f.TimingError = Positive(v)
	case semconv.GPUStartDelayKey:
		f.StartDelay, f.HasStartDelay = Number(v)
	case semconv.GPUEndDelayKey:
		f.EndDelay, f.HasEndDelay = Number(v)
	case semconv.GPUFloorDurationKey:
		f.Floor, f.HasFloor = Number(v)
		f.HasFloor = f.HasFloor && f.Floor >= 0
	case semconv.GPUIOSizeKey:
		f.Size = Positive(v)
	case semconv.GPUIOReadSizeKey:
		f.Read = Positive(v)
	case semconv.GPUIOWriteSizeKey:
		f.Write = Positive(v)
	case semconv.GPUFLOPCountKey:
		f.FLOPs = Positive(v)
	case semconv.GPUFLOPPrecisionKey:
		f.Precision = Clip(v.Str())
	case semconv.GPUOperationItemsKey:
		f.Items = Positive(v)
	case semconv.GPUOperationItemTypeKey:
		f.ItemType = Clip(v.Str())
	case semconv.GPUCopyDirectionKey:
		f.Direction = Clip(v.Str())
	case semconv.GPUCopyHostMemoryKey:
		f.HostMemory = Clip(v.Str())
	case semconv.GPUCollectiveNameKey:
		f.Collective = Clip(v.Str())
	case semconv.GPUCollectiveGroupSizeKey:
		f.GroupSize = Positive(v)
	case semconv.GPUCollectiveGroupIDKey:
		f.GroupID = Clip(v.Str())
	case semconv.GPUCollectiveSequenceKey:
		f.Sequence, f.HasSequence = v.Int(), v.Type() == pcommon.ValueTypeInt
	case semconv.GPUCollectivePeerRankKey:
		f.Peer = index(v)
	case semconv.GPUCacheL2HitRatioKey:
		f.L2Hit = Positive(v)
	case semconv.GPUBatchSizeKey:
		f.BatchSize = Positive(v)
	case semconv.GenAIRequestModelKey:
		f.RequestModel = Clip(v.Str())
	case semconv.GPURequestQueueDurationKey:
		f.Queue = Positive(v)
	case semconv.GPURequestTimeToFirstItemKey:
		f.TimeToFirstItem = Positive(v)
	case semconv.GPURequestPrefillDurationKey:
		f.Prefill = Positive(v)
	case semconv.GPURequestDecodeDurationKey:
		f.Decode = Positive(v)
	case semconv.GPUEnergyBoundKey:
		f.UpperBound = v.Str() == semconv.GPUEnergyBoundUpper
	case semconv.GPUEnergyKey:
		f.Energy, f.HasEnergy = Positive(v), true
	case semconv.GPUSelfEnergyKey:
		f.SelfEnergy, f.HasSelfEnergy = Positive(v), true
	case semconv.GPUMemoryUsageKey:
		f.HasMemory = true
	case semconv.GPUJoinCoverageKey:
		if c, ok := Number(v); ok && c >= 0 && c <= 1 {
			f.Coverage = c
		}
		f.Joined = true
	case semconv.GPUThrottleReasonsKey:
		if v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() > 0 {
			f.Throttle = Clip(v.Slice().At(0).Str())
		}
	case semconv.GPUStepIndexKey:
		f.StepIndex, f.HasStepIndex = v.Int(), v.Type() == pcommon.ValueTypeInt
	case semconv.GPUStepDurationKey:
		f.StepDuration = Positive(v)
	case semconv.GPUStepItemsKey:
		f.StepItems = Positive(v)
	case semconv.GPUStepItemTypeKey:
		f.StepItemType = Clip(v.Str())
	case semconv.GPUStepOverlapDurationKey:
		f.StepOverlap, f.HasPhases = Positive(v), true
	case semconv.GPUStepOtherDurationKey:
		f.StepOther, f.HasPhases = Positive(v), true
	case semconv.GPUStepCommExposedDurationKey:
		f.StepExposed, f.HasExposed = Number(v)
		f.HasExposed = f.HasExposed && f.StepExposed >= 0
	case semconv.GPUStepModelFLOPCountKey:
		f.ModelFLOPs = Positive(v)
	case semconv.GPUStepDeviceCountKey:
		f.Devices = Positive(v)
	case semconv.GPUStepCoveredDurationKey:
		f.HasCovered = true
	case semconv.GPURooflineBoundKey:
		f.Bound = Clip(v.Str())
	case semconv.GPURooflineUtilizationKey:
		f.Roofline, f.HasRoofline = Number(v)
	case semconv.GPUIOUtilizationKey:
		f.ioUse = Positive(v)
	case semconv.GPUFLOPUtilizationKey:
		f.flopUse = Positive(v)
	case semconv.GPUStepMFUKey:
		f.MFU = Positive(v)
	case semconv.GPURateStatusKey:
		f.BelowFloor = v.Str() == semconv.GPURateStatusBelowFloor
	case semconv.HWIDKey, semconv.HWParentKey, semconv.HWNameKey, semconv.HWModelKey,
		semconv.GPUPCIBDFKey, semconv.GPUDeviceOrdinalKey:
		f.Device.read(k, v)
	default:
		if k[4] == 's' { // gpu.step: saves the call for most names
			f.loadPhase(k, v)
		}
	}
}
