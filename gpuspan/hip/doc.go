// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package hip times gpuspan's sections with HIP events (AMD ROCm). It is experimental: it may
// change in any release.
//
// It corresponds to gpuspan/cuda: libamdhip64 is loaded at run time, without cgo, from
// [WithLibrary], otherwise the environment variable GPUSPAN_HIP_LIBRARY, otherwise the loader's
// path and /opt/rocm. It is tested with a stub that follows the documentation; it has not run on
// AMD hardware yet.
//
// Differences from CUDA:
//
//   - HIP has no contexts: a stream belongs to a device, and a thread's current device is a number that
//     [Backend.Bind] sets and restores.
//   - Events are created with hipEventDisableSystemFence, which avoids a cache flush for each timed event.
//   - Elapsed times are rounded twice on the way to float32 and may be negative.
//   - In older ROCm, an event that is recorded when nothing ran on the stream since the previous event shares the
//     previous event's marker. A clock anchor would then have an old time, so on anchor streams four bytes are set
//     before each record. For a section in which nothing ran, elapsed waits for a new marker. A section that starts
//     on an idle stream begins at the end of the previous work by its stamps: package clockmap moves its start to
//     the submission.
//   - A query that the runtime rejects because some stream is capturing (900) counts as "not ready": older ROCm
//     ignores the polling thread's relaxed mode in some calls.
//   - hw.id is `GPU-` and the 16 characters that rocminfo prints.
package hip
