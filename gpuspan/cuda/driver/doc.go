// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver calls the part of the CUDA driver API that timing and small programs need, without cgo: the library
// is loaded at run time, so a program that uses it builds anywhere and starts where there is no GPU.
//
// It is not a complete binding. Applications that reach CUDA through cgo or a C library need nothing of it: their
// stream handles go to gpuspan as they are.
//
// A CUDA context is current per OS thread. [Driver.Do] runs a function with a context current on a locked thread; every
// method that says so must be called within it.
//
// Importing this package imports github.com/ebitengine/purego, which makes the binary dynamically linked (libc, libdl),
// also with CGO_ENABLED=0. The build tag gpuspan_static leaves purego out: opening a driver then fails with a reason,
// and with CGO_ENABLED=0 the binary is static.
package driver
