// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package nsysreceiver reads SQLite exports of Nsight Systems (nsys export --type sqlite) and turns
// them into spans.
//
// As a component of the Collector (type nsys) it follows folders or reads once. [ReadFile] is the
// function for other programs.
//
// # Format
//
// The schema of an export changes with the version of the product, so tables and columns are read
// from the file. Used are, where they exist:
//
//	CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET   activities of the device
//	CUPTI_ACTIVITY_KIND_RUNTIME                    calls of the CUDA runtime and driver
//	NVTX_EVENTS                                    ranges; PyTorch's operators and numbered steps are recognised
//	StringIds                                      names
//	TARGET_INFO_SESSION_START_TIME                 what times count from
//	TARGET_INFO_GPU, TARGET_INFO_CUDA_DEVICE       model and identity of devices
//	TARGET_INFO_SYSTEM_ENV, META_DATA_CAPTURE      host, job and rank
//	PROFILER_OVERHEAD, CUPTI_ACTIVITY_KIND_OVERHEAD counted
//
// Databases that rocprofv3 writes (rocpd) are read, too.
package nsysreceiver
