// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cuda times gpuspan's sections with CUDA events.
//
// The driver (libcuda) is loaded at run time, without cgo: a program that imports this package
// builds on any machine and starts on one without a GPU, where [Open] returns why it cannot time.
//
//	backend, _ := cuda.Open()
//	prof, err := gpuspan.New(backend)
//	if err != nil {
//		log.Print(err) // no driver, no device: prof falls back to the host's clock and reports it
//	}
//	stream := prof.Stream(uintptr(cudaStream), "main") // a cudaStream_t or CUstream from cgo or a C library
//
// # Path of the driver
//
// The driver is searched in [WithLibrary], then the environment variable GPUSPAN_CUDA_LIBRARY, then
// the loader's path (libcuda.so.1), then the folders of WSL, GKE, NixOS and Jetson. If the process
// has already loaded the driver, the loader returns the same library, so streams created anywhere
// in the process are valid.
//
// # Streams and contexts
//
// A stream's context and device are determined once, when it is registered; events are created in
// that context. Streams of several contexts of one device can be timed at the same time; the
// library's own events, for the device's clock, are in the context of the first stream (almost
// always the primary context, which the CUDA runtime uses). The handle 2 and streams of `_ptsz`
// functions (per-thread default streams) are rejected by gpuspan, because they refer to the calling
// OS thread. The legacy stream (0 or 1) serializes with all blocking streams, so a section on it
// includes their work; gpuspan accepts it only with [gpuspan.AllowLegacy], for the context that is
// current on the thread that registers it. Register it on the locked OS thread that uses the
// device; without a current context it is rejected.
//
// The context must outlive its registered streams. If it is destroyed earlier, calls return a
// status and the streams are retired; nothing crashes.
//
// # Graph capture
//
// While any thread captures a graph in the default mode, CUDA forbids all threads to query events,
// and such a query invalidates the capture. The polling thread therefore runs in relaxed capture
// mode ([Backend.ThreadInit]), and a section on a capturing stream records nothing. Driver calls of
// Start and End (memory usage, waiting in the modes immediate and group) use relaxed mode, too.
// Time graphs around their launch (gpuspan's Launch).
//
// # Failures
//
//   - there is no driver, it is too old, or no device is visible: the error of [Open] names every path that was tried
//     and every missing symbol; gpuspan.New accepts the backend nevertheless and times with the host's clock.
//   - cuEventElapsedTime_v2 or cuDeviceGetUuid_v2 is missing (before CUDA 12.8 and 11.4): the older functions are
//     used.
//   - a stream is per-thread, is the legacy one of a thread without a context, or captures while it is registered: an
//     error with the reason; sections on it get host times.
//   - the driver needs a current context for each record (no known version does): gpuspan's self-test at registration
//     detects it, and records are made within [Backend.Bind], which takes 60 ns more.
//   - the device fails, or a context is destroyed: the driver's status goes to gpuspan, which retires the stream.
//     Streams of other devices and of a later context are timed as before.
//   - the driver does not report a device property (UUID, PCI address, memory, version): the property is empty.
//
// # Costs
//
// Record is one driver call with preallocated arguments; nothing allocates after registration. A
// section is two records and two capture checks: 0.2 µs for gpuspan and the calls into C, plus the
// driver, which takes about one to two microseconds for a timed record according to published
// measurements.
//
// Importing the package links purego in any case, which makes the binary dynamic (libc, libdl) even
// with CGO_ENABLED=0: it does not start in a scratch image. Package gpuspan alone does.
//
// Only Linux is supported; elsewhere the package compiles and [Open] returns an error.
package cuda
