// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpucapturereceiver records the kernels, copies and memsets of running CUDA processes in
// short windows and turns them into spans, below the spans that launched them, with the analysis
// that profiler files get.
//
//	process ─► libcuda loads libotelgpu_capture.so (CUDA_INJECTION64_PATH) ─► ring in shared memory
//	                                                                              │ window, budget ▲
//	                                       internal/ring ◄────────────────────────┘                │
//	                                            └─► internal/profiletrace ─► ptrace batches      this receiver
//
// The library is in shim/, plain C; shim/ring.h is the format of the ring. Outside of windows
// nothing of CUPTI is called in the process: its one more thread sleeps. [Capture] is one window of
// one process, for a command.
package gpucapturereceiver
