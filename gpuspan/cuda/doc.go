// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cuda times gpuspan's sections with CUDA events.
//
// The driver (libcuda) is loaded at run time, without cgo: a program that imports this package builds on any machine and
// starts on one without a GPU, where [Open] says why it cannot time.
//
//	backend, _ := cuda.Open()
//	prof, err := gpuspan.New(backend)
//	if err != nil {
//		log.Print(err) // no driver, no device: prof times with the host's clock and says so
//	}
//	stream := prof.Stream(uintptr(cudaStream), "main") // a cudaStream_t or CUstream from cgo or a C library
//
// # Where the driver is looked for
//
// [WithLibrary], else the environment variable GPUSPAN_CUDA_LIBRARY, else the loader's own path (libcuda.so.1), else the
// folders of WSL, GKE, NixOS and Jetson. A driver that the process has loaded already answers under its soname,
// so streams made anywhere in the process are valid here.
//
// # Streams and contexts
//
// A stream's context and device are resolved once, when it is registered; events are made in that context. One context per
// device is supported: the first stream decides (almost always the primary context, the one of the CUDA runtime), a stream of
// another context of the same device is refused by name. The handle 2 and streams of `_ptsz` functions
// (per-thread default streams) are refused by gpuspan, for they mean the OS thread that asks. The legacy stream (0 or 1) serialises
// with all blocking streams, so a section on it includes their work; gpuspan accepts it only as an option.
//
// The context must outlive its streams' registration. When it is destroyed anyway, calls answer with a status and the
// streams retire; nothing crashes.
//
// # Graph capture
//
// CUDA forbids questions about events to every thread while some thread captures a graph in the default mode, and such a
// question destroys the capture. The polling thread therefore runs in relaxed capture mode ([Backend.ThreadInit]), and a
// section on a capturing stream records nothing. Time graphs around their launch (gpuspan's Launch).
//
// # Costs
//
// Record and Capturing are one driver call each, through argument arrays that exist already: no allocation. The driver's
// own time for a timed event record is about one to two microseconds. Importing the package links
// github.com/ebitengine/purego, which makes the binary dynamic (libc, libdl) even with CGO_ENABLED=0: it does not start in a
// scratch image. Package gpuspan itself does not.
//
// Only Linux is supported; elsewhere the package compiles and [Open] says so.
package cuda
