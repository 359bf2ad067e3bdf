// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !(linux || darwin)

package dl

import (
	"errors"
	"runtime"
)

var errUnsupported = errors.New("loading libraries is not supported on " + runtime.GOOS)

func open(string) (uintptr, error)            { return 0, errUnsupported }
func symbol(uintptr, string) (uintptr, error) { return 0, errUnsupported }
func (f *Frame) call(Func, int) uintptr       { return 0 }
