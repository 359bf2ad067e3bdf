// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ctest

import "github.com/ebitengine/purego"

func dlopen(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func registerFunc(f any, handle uintptr, name string) { purego.RegisterLibFunc(f, handle, name) }
