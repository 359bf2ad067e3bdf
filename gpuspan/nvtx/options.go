// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"os"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct {
	library string
	domain  string
	ids     IDs
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary names the injection library; the empty string, the default, means what NVTX_INJECTION64_PATH names.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }

// WithDomain names the domain of the sections' ranges; default `gpuspan`.
func WithDomain(name string) Option { return optionFunc(func(c *config) { c.domain = name }) }

// IDs says how ranges carry the ids of their span, or of its parent where no ids are reserved
// (gpuspan.WithIDGenerator).
type IDs uint8

const (
	// IDsInPayload puts the span id into the payload, as the unsigned number whose hexadecimal form it is, and before
	// ranges whose trace is sampled a mark with the same payload and the text "traceparent=00-<trace id>-<span id>-01",
	// for steps followed by " step=<number>". The range's own text is the name of the operation, so that the profiler's
	// summaries by name have one row for each, and its capture ranges (nsys profile -c nvtx -p name@domain) find it. The
	// default.
	IDsInPayload IDs = iota
	// IDsInMessage puts both ids into the text of ranges whose trace is sampled: found by the eye, and a name of its own
	// for every range.
	IDsInMessage
	// NoIDs leaves both out.
	NoIDs
)

// WithIDs says how ranges carry ids.
func WithIDs(ids IDs) Option { return optionFunc(func(c *config) { c.ids = ids }) }

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
