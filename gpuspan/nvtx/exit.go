// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"os"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Exit ends the program with a code, as [os.Exit] does, which runs no deferred functions either: call it last, instead
// of returning from main. Where a tool is attached it ends through the C library's exit. A Go program otherwise ends by
// a system call, without the handlers of atexit, in which Nsight Systems writes the ranges that it still holds: the
// last dozens would be missing. Where no tool was attached by [Open] it is os.Exit.
func Exit(code int) {
	if attached() {
		if libc, err := dl.Open("libc.so.6", "libc.so"); err == nil {
			if exit := libc.Lookup("exit"); exit != 0 {
				exit.Call(uintptr(code))
			}
		}
	}
	os.Exit(code) //nolint:forbidigo // what the caller asked for
}
