// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/semconv"
)

// read sets the field of one attribute.
func (f *Facts) read(k string, v pcommon.Value) {
	switch k {
	case string(semconv.GPUOperationTypeKey):
		f.Type = Clip(v.Str())
	case string(semconv.GPUOperationNameKey):
		f.full = v.Str()
	case string(semconv.GPUOperationCategoryKey):
		f.Category = Clip(v.Str())
	case string(semconv.GPUStreamIDKey):
		f.Stream = index(v)
	case string(semconv.GPUDurationKey):
		f.Duration = Positive(v)
	case string(semconv.GPUTimingStatusKey):
		f.Status = Clip(v.Str())
	case string(semconv.GPUTimingSourceKey):
		f.Source = Clip(v.Str())
	case string(semconv.GPUTimingErrorKey):
		f.TimingError = Positive(v)
	case string(semconv.GPUStartDelayKey):
		f.StartDelay, f.HasStartDelay = Number(v)
	case string(semconv.GPUEndDelayKey):
		f.EndDelay, f.HasEndDelay = Number(v)
	case string(semconv.GPUFloorDurationKey):
		f.Floor, f.HasFloor = Number(v)
		f.HasFloor = f.HasFloor && f.Floor >= 0
	case string(semconv.GPUIOSizeKey):
		f.Size = Positive(v)
	case string(semconv.GPUIOReadSizeKey):
		f.Read = Positive(v)
	case string(semconv.GPUIOWriteSizeKey):
		f.Write = Positive(v)
	case string(semconv.GPUFLOPCountKey):
		f.FLOPs = Positive(v)
	case string(semconv.GPUFLOPPrecisionKey):
		f.Precision = Clip(v.Str())
	case string(semconv.GPUOperationItemsKey):
		f.Items = Positive(v)
	case string(semconv.GPUOperationItemTypeKey):
		f.ItemType = Clip(v.Str())
	case string(semconv.GPUCopyDirectionKey):
		f.Direction = Clip(v.Str())
	case string(semconv.GPUCopyHostMemoryKey):
		f.HostMemory = Clip(v.Str())
	case string(semconv.GPUCollectiveNameKey):
		f.Collective = Clip(v.Str())
	case string(semconv.GPUCollectiveGroupSizeKey):
		f.GroupSize = Positive(v)
	case string(semconv.GPUCollectiveGroupIDKey):
		f.GroupID = Clip(v.Str())
	case string(semconv.GPUCollectiveSequenceKey):
		f.Sequence, f.HasSequence = v.Int(), v.Type() == pcommon.ValueTypeInt
	case string(semconv.GPUCollectivePeerRankKey):
		f.Peer = index(v)
	case string(semconv.GPUCacheL2HitRatioKey):
		f.L2Hit = Positive(v)
	case string(semconv.GPUBatchSizeKey):
		f.BatchSize = Positive(v)
	case string(semconv.GenAIRequestModelKey):
		f.RequestModel = Clip(v.Str())
	case string(semconv.GPURequestQueueDurationKey):
		f.Queue = Positive(v)
	case string(semconv.GPURequestTimeToFirstItemKey):
		f.TimeToFirstItem = Positive(v)
	case string(semconv.GPURequestPrefillDurationKey):
		f.Prefill = Positive(v)
	case string(semconv.GPURequestDecodeDurationKey):
		f.Decode = Positive(v)
	case string(semconv.GPUEnergyBoundKey):
		f.UpperBound = v.Str() == semconv.GPUEnergyBoundUpper
	case string(semconv.GPUEnergyKey):
		f.Energy, f.HasEnergy = Positive(v), true
	case string(semconv.GPUSelfEnergyKey):
		f.SelfEnergy, f.HasSelfEnergy = Positive(v), true
	case string(semconv.GPUMemoryUsageKey):
		f.HasMemory = true
	case string(semconv.GPUJoinCoverageKey):
		if c, ok := Number(v); ok && c >= 0 && c <= 1 {
			f.Coverage = c
		}
		f.Joined = true
	case string(semconv.GPUThrottleReasonsKey):
		if v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() > 0 {
			f.Throttle = Clip(v.Slice().At(0).Str())
		}
	case string(semconv.GPUStepIndexKey):
		f.StepIndex, f.HasStepIndex = v.Int(), v.Type() == pcommon.ValueTypeInt
	case string(semconv.GPUStepDurationKey):
		f.StepDuration = Positive(v)
	case string(semconv.GPUStepItemsKey):
		f.StepItems = Positive(v)
	case string(semconv.GPUStepItemTypeKey):
		f.StepItemType = Clip(v.Str())
	case string(semconv.GPUStepOverlapDurationKey):
		f.StepOverlap, f.HasPhases = Positive(v), true
	case string(semconv.GPUStepOtherDurationKey):
		f.StepOther, f.HasPhases = Positive(v), true
	case string(semconv.GPUStepCommExposedDurationKey):
		f.StepExposed, f.HasExposed = Number(v)
		f.HasExposed = f.HasExposed && f.StepExposed >= 0
	case string(semconv.GPUStepModelFLOPCountKey):
		f.ModelFLOPs = Positive(v)
	case string(semconv.GPUStepDeviceCountKey):
		f.Devices = Positive(v)
	case string(semconv.GPUStepCoveredDurationKey):
		f.HasCovered = true
	case string(semconv.GPURooflineBoundKey):
		f.Bound = Clip(v.Str())
	case string(semconv.GPURooflineUtilizationKey):
		f.Roofline, f.HasRoofline = Number(v)
	case string(semconv.GPUIOUtilizationKey):
		f.ioUse = Positive(v)
	case string(semconv.GPUFLOPUtilizationKey):
		f.flopUse = Positive(v)
	case string(semconv.GPUStepMFUKey):
		f.MFU = Positive(v)
	case string(semconv.GPURateStatusKey):
		f.BelowFloor = v.Str() == semconv.GPURateStatusBelowFloor
	case string(semconv.HWIDKey), string(semconv.HWParentKey), string(semconv.HWNameKey), string(semconv.HWModelKey),
		string(semconv.GPUPCIBDFKey), string(semconv.GPUDeviceOrdinalKey):
		f.Device.read(k, v)
	default:
		if k[4] == 's' { // gpu.step: saves the call for most names
			f.loadPhase(k, v)
		}
	}
}
