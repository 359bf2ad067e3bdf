// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// producer is another program that writes Chrome traces with work of devices. Its categories and
// arguments differ, so that the work would not be found, or be mistaken for the host's. It is
// recognized by the names of its processes (events "process_name").
type producer struct {
	is           func(process string) bool
	says, remedy string
}

func starts(with ...string) func(string) bool {
	return func(process string) bool {
		for _, w := range with {
			if strings.HasPrefix(process, w) {
				return true
			}
		}
		return false
	}
}

var producers = []producer{
	{
		starts("Ascend Hardware", "CANN"), "a trace of Ascend's profiler (torch_npu, msprof)",
		"work of NPUs is not read",
	},
	{
		func(process string) bool {
			return starts("/device:", "/host:")(process) || strings.Contains(process, "/device:")
		},
		"a trace of XLA's profiler (JAX, TensorFlow)",
		"profile the program with nsys profile, then nsys export --type sqlite; for ROCm: rocprofv3 --output-format json",
	},
	{
		starts("CPU HIP API", "CPU HSA API"), "a trace of rocprof",
		"record with rocprofv3 --output-format json",
	},
	{
		func(process string) bool { return strings.Contains(process, "DEVICE<") }, "a trace of Intel's unitrace",
		"record with torch.profiler and ProfilerActivity.XPU",
	},
}

// withinKernels is a producer whose ranges are parts of kernels, in rows of warps.
var withinKernels = producer{
	says: "a trace within kernels, as of Triton's Proton", remedy: "torch.profiler.profile(...).export_chrome_trace",
}

// protonNanoseconds reports whether an event is of a version of Triton's Proton that writes
// nanoseconds, as integers. Others compute microseconds, and write numbers with a point.
func protonNanoseconds(j *chromejson.Event) bool {
	return !bytes.ContainsRune(j.TS, '.') && !bytes.ContainsRune(j.Dur, '.') && bytes.Contains(j.Args, callStack)
}

var warpRow, callStack = []byte(`"warp `), []byte(`"call_stack"`)

// process reads the name of a process.
func (c *collect) process(j *chromejson.Event) {
	if string(j.Name) != "process_name" || c.foreign != nil {
		return
	}
	chromejson.Fields(j.Args, func(k, v []byte) bool {
		if string(k) != "name" {
			return true
		}
		name := text(v)
		for i := range producers {
			if producers[i].is(name) {
				c.foreign = &producers[i]
				break
			}
		}
		return false
	})
}

// refuse returns what a file is if nothing supported was found, or no work of a device in a file of
// another producer. err is the error of the JSON reader.
func (c *collect) refuse(path string, head []byte, err error) error {
	if what := profilefile.Document(path, head); what != "" {
		switch {
		case errors.Is(err, ErrNotTrace):
			return fmt.Errorf("%w: %s", err, what)
		case err == nil && c.found == 0:
			return fmt.Errorf("%w: %s", ErrNotTrace, what)
		}
	}
	if c.proton {
		c.meta.faults = append(c.meta.faults, "all times are whole numbers, as of versions of Triton's Proton that write "+
			"nanoseconds where the format has microseconds: they were read as nanoseconds")
	}
	switch {
	case c.foreign == nil:
	case c.activities == 0:
		return fmt.Errorf("%w: it is %s (%s)", ErrForeign, c.foreign.says, c.foreign.remedy)
	default:
		c.meta.faults = append(c.meta.faults, "work in rows of "+c.foreign.says+" is not read")
	}
	return err
}
