// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package dl

import "github.com/ebitengine/purego"

// open keeps the symbols to the library itself: RTLD_GLOBAL would offer ours to the application's other libraries.
func open(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
