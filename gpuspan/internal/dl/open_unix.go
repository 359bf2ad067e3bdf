// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build (linux || darwin) && !gpuspan_static

package dl

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// The loader keeps the reason of a failure for the thread that failed, and purego reads it in a
// second call: both must be on one thread.

// open keeps the symbols local: RTLD_GLOBAL would expose ours to the application's other libraries.
func open(path string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}
