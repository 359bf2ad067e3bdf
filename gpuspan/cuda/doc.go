// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cuda times gpuspan's sections with CUDA events.
//
// The driver (libcuda) is loaded at run time, without cgo: a program that imports this package builds on any machine
// and starts on one without a GPU, where [Open] returns why it cannot time.
//
//	backend, _ := cuda.Open()
//	prof, err := gpuspan.New(backend)
//	if err != nil {
//		log.Print(err) // no driver, no device: prof falls back to the host's clock and reports it
//	}
//	stream := prof.Stream(uintptr(cudaStream), "main") // a cudaStream_t or CUstream from cgo or a C library
//
// # Where the driver is looked for
//
// [WithLibrary], else the environment variable GPUSPAN_CUDA_LIBRARY, else the loader's own path (libcuda.so.1), else
// the folders of WSL, GKE, NixOS and Jetson. A driver that the process has loaded already answers under its soname, so
// streams made anywhere in the process are valid here.
//
// # Streams and contexts
//
// A stream's context and device are resolved once, when it is registered; events are made in that context. Streams of
// several contexts of one device are timed side by side; the library's own events, for the device's clock, are in that
// of the first stream (almost always the primary context, the one of the CUDA runtime). The handle 2 and streams of
// `_ptsz` functions (per-thread default streams) are rejected by gpuspan, because they refer to the calling OS thread.
// The legacy stream (0 or 1) serialises with all blocking streams, so a section on it includes their work; gpuspan
// accepts it only as an option, and then it is the one of the context that is current on the thread that registers it.
// Without one it is refused: register it on the locked OS thread that uses the device.
//
// The context must outlive its streams' registration. When it is destroyed anyway, calls answer with a status and the
// streams retire; nothing crashes.
//
// # Graph capture
//
// CUDA forbids questions about events to every thread while some thread captures a graph in the default mode, and such
// a question destroys the capture. The polling thread therefore runs in relaxed capture mode ([Backend.ThreadInit]),
// and a section on a capturing stream records nothing. What callers of Start and End ask the driver themselves (memory
// usage, waiting in the modes immediate and group) is queried in relaxed mode, too. Time graphs around their launch
// (gpuspan's Launch).
//
// # What happens when
//
//   - there is no driver, it is too old, or no device is visible: [Open] returns which of these it is and names every
//     path that was tried and every symbol that is missing; gpuspan.New takes the backend all the same and times with
//     the host's clock.
//   - cuEventElapsedTime_v2 or cuDeviceGetUuid_v2 is missing (before CUDA 12.8 and 11.4): the older functions serve.
//   - a stream is per-thread, is the legacy one of a thread without a context, or captures while it is registered: an
//     error with the reason; sections on it get host times.
//   - the driver wants a context for each record (it does not, as far as is known): gpuspan's self-test at registration
//     notices, and records are made within [Backend.Bind], 60 ns more.
//   - the device fails, or a context is destroyed: the driver's status goes to gpuspan, which retires the stream.
//     Streams of other devices and of a later context are timed as before.
//   - device properties that the driver does not report (UUID, PCI address, memory, version) are empty, never invented.
//
// # Costs
//
// Record is one driver call, through arguments that exist already; nothing here allocates after registration. A section
// is two records and two capture checks: 0.2 µs of gpuspan and of getting into C, plus the driver, whose time for a
// timed record is about one to two microseconds by published measurements. On linux/amd64 the build tag gpuspan_asm
// makes calls through a trampoline of this module's own instead of github.com/ebitengine/purego, which saves 35 to 60
// ns for each and depends on internals of the Go runtime.
//
// Importing the package links purego in any case, which makes the binary dynamic (libc, libdl) even with CGO_ENABLED=0:
// it does not start in a scratch image. Package gpuspan alone does.
//
// Only Linux is supported; elsewhere the package compiles and [Open] returns an error.
package cuda
