// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// field is an attribute that a span may have, and what the facts take from it; nothing where read is nil.
type field struct {
	key  attribute.Key
	read func(*Facts, pcommon.Value)
}

// unread is the number of the field of attributes that are not in the list.
const unread = 0

// read are those that facts are taken from.
var read = []field{
	{semconv.GPUOperationTypeKey, func(f *Facts, v pcommon.Value) { f.Type = v.Str() }},
	{semconv.GPUOperationNameKey, func(f *Facts, v pcommon.Value) { f.Name = v.Str() }},
	{semconv.GPUOperationCategoryKey, func(f *Facts, v pcommon.Value) { f.Category = v.Str() }},
	{semconv.HWIDKey, func(f *Facts, v pcommon.Value) { f.Device.ID = v.Str() }},
	{semconv.HWParentKey, func(f *Facts, v pcommon.Value) { f.Device.Parent = v.Str() }},
	{semconv.HWNameKey, func(f *Facts, v pcommon.Value) { f.Device.Name = v.Str() }},
	{semconv.HWModelKey, func(f *Facts, v pcommon.Value) { f.Device.Model = v.Str() }},
	{semconv.GPUPCIBDFKey, func(f *Facts, v pcommon.Value) { f.Device.BDF = v.Str() }},
	{semconv.GPUDeviceOrdinalKey, func(f *Facts, v pcommon.Value) { f.Device.Ordinal = index(v) }},
	{semconv.GPUStreamIDKey, func(f *Facts, v pcommon.Value) { f.Stream = index(v) }},

	{semconv.GPUDurationKey, func(f *Facts, v pcommon.Value) { f.Duration = Positive(v) }},
	{semconv.GPUTimingStatusKey, func(f *Facts, v pcommon.Value) { f.Status = v.Str() }},
	{semconv.GPUTimingSourceKey, func(f *Facts, v pcommon.Value) { f.Source = v.Str() }},
	{semconv.GPUTimingErrorKey, func(f *Facts, v pcommon.Value) { f.TimingError = Positive(v) }},
	{semconv.GPUStartDelayKey, func(f *Facts, v pcommon.Value) { f.StartDelay, f.HasStartDelay = Number(v) }},
	{semconv.GPUEndDelayKey, func(f *Facts, v pcommon.Value) { f.EndDelay, f.HasEndDelay = Number(v) }},
	{semconv.GPUFloorDurationKey, func(f *Facts, v pcommon.Value) {
		f.Floor, f.HasFloor = Number(v)
		f.HasFloor = f.HasFloor && f.Floor >= 0
	}},

	{semconv.GPUIOSizeKey, func(f *Facts, v pcommon.Value) { f.Size = Positive(v) }},
	{semconv.GPUIOReadSizeKey, func(f *Facts, v pcommon.Value) { f.Read = Positive(v) }},
	{semconv.GPUIOWriteSizeKey, func(f *Facts, v pcommon.Value) { f.Write = Positive(v) }},
	{semconv.GPUFLOPCountKey, func(f *Facts, v pcommon.Value) { f.FLOPs = Positive(v) }},
	{semconv.GPUFLOPPrecisionKey, func(f *Facts, v pcommon.Value) { f.Precision = v.Str() }},
	{semconv.GPUOperationItemsKey, func(f *Facts, v pcommon.Value) { f.Items = Positive(v) }},
	{semconv.GPUOperationItemTypeKey, func(f *Facts, v pcommon.Value) { f.ItemType = v.Str() }},
	{semconv.GPUCopyDirectionKey, func(f *Facts, v pcommon.Value) { f.Direction = v.Str() }},
	{semconv.GPUCopyHostMemoryKey, func(f *Facts, v pcommon.Value) { f.HostMemory = v.Str() }},
	{semconv.GPUCollectiveNameKey, func(f *Facts, v pcommon.Value) { f.Collective = v.Str() }},
	{semconv.GPUCollectiveGroupSizeKey, func(f *Facts, v pcommon.Value) { f.GroupSize = Positive(v) }},
	{semconv.GPUCacheL2HitRatioKey, func(f *Facts, v pcommon.Value) { f.L2Hit = Positive(v) }},

	{semconv.GPUBatchSizeKey, func(f *Facts, v pcommon.Value) { f.BatchSize = Positive(v) }},
	{semconv.GenAIRequestModelKey, func(f *Facts, v pcommon.Value) { f.RequestModel = v.Str() }},
	{semconv.GPURequestQueueDurationKey, func(f *Facts, v pcommon.Value) { f.Queue = Positive(v) }},
	{semconv.GPURequestTimeToFirstItemKey, func(f *Facts, v pcommon.Value) { f.TimeToFirstItem = Positive(v) }},

	{semconv.GPUEnergyKey, func(f *Facts, v pcommon.Value) { f.Energy, f.HasEnergy = Positive(v), true }},
	{semconv.GPUSelfEnergyKey, func(f *Facts, v pcommon.Value) {
		f.SelfEnergy, f.HasSelfEnergy = Positive(v), true
	}},
	{semconv.GPUMemoryUsageKey, func(f *Facts, _ pcommon.Value) { f.HasMemory = true }},
	{semconv.GPUJoinCoverageKey, func(f *Facts, v pcommon.Value) {
		if c, ok := Number(v); ok && c >= 0 && c <= 1 {
			f.Coverage = c
		}
		f.Joined = true
	}},
	{semconv.GPUThrottleReasonsKey, func(f *Facts, v pcommon.Value) {
		if v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() > 0 {
			f.Throttle = v.Slice().At(0).Str()
		}
	}},

	{semconv.GPUStepIndexKey, func(f *Facts, v pcommon.Value) {
		f.StepIndex, f.HasStepIndex = v.Int(), v.Type() == pcommon.ValueTypeInt
	}},
	{semconv.GPUStepDurationKey, func(f *Facts, v pcommon.Value) { f.StepDuration = Positive(v) }},
	{semconv.GPUStepItemsKey, func(f *Facts, v pcommon.Value) { f.StepItems = Positive(v) }},
	{semconv.GPUStepItemTypeKey, func(f *Facts, v pcommon.Value) { f.StepItemType = v.Str() }},
	{semconv.GPUStepOverlapDurationKey, func(f *Facts, v pcommon.Value) {
		f.StepOverlap, f.HasPhases = Positive(v), true
	}},
	{semconv.GPUStepOtherDurationKey, func(f *Facts, v pcommon.Value) {
		f.StepOther, f.HasPhases = Positive(v), true
	}},
	{semconv.GPUStepCommExposedDurationKey, func(f *Facts, v pcommon.Value) {
		f.StepExposed, f.HasExposed = Number(v)
		f.HasExposed = f.HasExposed && f.StepExposed >= 0
	}},
	{semconv.GPUStepModelFLOPCountKey, func(f *Facts, v pcommon.Value) { f.ModelFLOPs = Positive(v) }},
	{semconv.GPUStepDeviceCountKey, func(f *Facts, v pcommon.Value) { f.Devices = Positive(v) }},
	{semconv.GPUStepCoveredDurationKey, func(f *Facts, _ pcommon.Value) { f.HasCovered = true }},

	{semconv.GPURooflineBoundKey, func(f *Facts, v pcommon.Value) { f.Bound = v.Str() }},
	{semconv.GPURooflineUtilizationKey, func(f *Facts, v pcommon.Value) { f.Roofline, f.HasRoofline = Number(v) }},
	{semconv.GPUIOUtilizationKey, func(f *Facts, v pcommon.Value) { f.ioUse = Positive(v) }},
	{semconv.GPUFLOPUtilizationKey, func(f *Facts, v pcommon.Value) { f.flopUse = Positive(v) }},
	{semconv.GPUStepMFUKey, func(f *Facts, v pcommon.Value) { f.MFU = Positive(v) }},
	{semconv.GPURateStatusKey, func(f *Facts, v pcommon.Value) {
		f.BelowFloor = v.Str() == semconv.GPURateStatusBelowFloor
	}},
}

// fields are the attributes by number: those that are read, then the other registered ones of spans, for the sake of
// guesses.
var fields = func() (all [256]field) {
	n := 1 + copy(all[1:], read)
	for _, a := range semconv.Attributes() {
		known := slices.ContainsFunc(read, func(x field) bool { return string(x.key) == a.Name })
		if !known && slices.Contains(a.On, "span") && n < len(all) {
			all[n].key = attribute.Key(a.Name)
			n++
		}
	}
	return all
}()

// numbers are those of the fields by name.
var numbers = func() map[string]uint8 {
	m := make(map[string]uint8, len(fields))
	for i, x := range fields {
		if x.key != "" {
			m[string(x.key)] = uint8(i)
		}
	}
	return m
}()

// guesses are the number of the field that followed each one last. Spans of one producer have their attributes in one
// order, so that the next name has only to be compared, not looked up.
type guesses [256]uint8
