// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package hip times gpuspan's sections with HIP events (AMD ROCm).
//
// It is the sibling of gpuspan/cuda: libamdhip64 is loaded at run time, without cgo, from [WithLibrary], else the
// environment variable GPUSPAN_HIP_LIBRARY, else the loader's own path and /opt/rocm. It is tested against a stub that
// obeys the documented rules; it has not run on AMD hardware yet.
//
// What differs from CUDA, and what this package does about it:
//
//   - There are no contexts to resolve: a stream knows its device, and a thread's current device is a number that
//     [Backend.Bind] sets and restores.
//   - Events are made with hipEventDisableSystemFence, which spares the cache flush that a timed event otherwise costs.
//   - Elapsed times are rounded twice on the way to float32 and may be negative.
//   - Older ROCm lets an event that is recorded when nothing ran on the stream since the last one share that one's
//     marker. A clock anchor would then carry an old time, so on anchor streams four bytes are set before each record.
//     For a section in which nothing ran, elapsed waits there for a new marker, and one that starts on an idle stream
//     begins at the end of what ran before: gpuspan's own bounds (a section begins after its Start) cut that off and
//     count it.
//   - A query that the runtime refuses because some stream is capturing (900) means "not ready" here: older ROCm
//     does not honour the polling thread's relaxed mode everywhere.
//   - hw.id is `GPU-` and the 16 characters that rocminfo shows.
package hip
