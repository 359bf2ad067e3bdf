// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import "unsafe"

// The structures of dcgm_structs.h and dcgm_fields.h that pass between a client and the library. A
// test compares every size and offset with NVIDIA's headers.

// version returns the version number that a structure carries: its size, and which revision it is.
func version[T any](revision uint32) uint32 {
	var x T
	return uint32(unsafe.Sizeof(x)) | revision<<24
}

// connectParams is dcgmConnectV2Params_v2.
type connectParams struct {
	version, persist, timeout, unix uint32
}

// entityPair is dcgmGroupEntityPair_t.
type entityPair struct {
	kind int32
	id   uint32
}

// migEntity is dcgmMigHierarchyInfo_v2.
type migEntity struct {
	entity, parent  entityPair
	uuid            [128]byte
	index           uint32
	gpuInstance     uint32
	computeInstance uint32
	profile         uint32
	slices          uint32
}

// migHierarchy is dcgmMigHierarchy_v2.
type migHierarchy struct {
	version, count uint32
	list           [32 * 14]migEntity
}

// metricGroup is dcgmProfMetricGroupInfo_v2.
type metricGroup struct {
	major, minor uint16
	n            uint32
	fields       [64]uint16
}

// metricGroups is dcgmProfGetMetricGroups_v3.
type metricGroups struct {
	version, unused, gpu, n uint32
	list                    [10]metricGroup
}

// fieldMeta is the beginning of dcgm_field_meta_t.
type fieldMeta struct {
	id  uint16
	typ byte
}

// fieldValue is dcgmFieldValue_v1.
type fieldValue struct {
	version    uint32
	field, typ uint16
	status     int32
	ts         int64
	value      [4096]byte
}

// migAttributes is dcgmDeviceMigAttributes_v1. A value has an array of them: the first one has the
// count, each of the others an instance (MIG_ATTRIBUTES in DCGM's DcgmCacheManager.cpp).
type migAttributes struct {
	version, count                                uint32
	infoVersion, gpuInstance, computeInstance     uint32
	multiprocessors                               uint32
	copies, decoders, encoders, jpegs, ofas, g, c uint32
	memory                                        uint64
}

// process is dcgmRunningProcess_v1, which a value of the processes holds.
type process struct {
	version, pid uint32
	memory       uint64
}
