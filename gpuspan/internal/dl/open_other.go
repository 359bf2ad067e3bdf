// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(linux || darwin) || gpuspan_static

package dl

import (
	"errors"
	"runtime"
)

// errUnsupported is also returned by programs built with the tag gpuspan_static: without the
// system's loader they are linked statically, and start without a libc.
var errUnsupported = errors.New("this program cannot load libraries (it is for " + runtime.GOOS +
	", or was built with the tag gpuspan_static)")

func open(string) (uintptr, error)            { return 0, errUnsupported }
func symbol(uintptr, string) (uintptr, error) { return 0, errUnsupported }
func (f *Frame) call(Func, int) uintptr       { return 0 }
