// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// A libcuda with one device, an H100, for what the library queries.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal == 0 ? 0 : 101; }

int cuDeviceGetUuid_v2(uint8_t *uuid, int device) {
	for (int i = 0; i < 16; i++) uuid[i] = (uint8_t)i;
	return device == 0 ? 0 : 101;
}

int cuDeviceGetName(char *name, int size, int device) {
	snprintf(name, (size_t)size, "NVIDIA H100 80GB HBM3");
	return device == 0 ? 0 : 101;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
	// CUdevice_attribute with the values of compute capability 9.0
	static const int list[][2] = {{10, 32}, {16, 132}, {39, 2048}, {75, 9}, {76, 0}, {81, 233472}, {82, 65536}, {106, 32}};
	for (unsigned i = 0; i < sizeof list / sizeof *list; i++)
		if (list[i][0] == attribute) {
			*value = list[i][1];
			return device == 0 ? 0 : 101;
		}
	return 1; // CUDA_ERROR_INVALID_VALUE
}
