// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvmlsource implements the source `nvml`: the NVIDIA Management Library, and GPM through
// it on Hopper and later.
//
// NVML keeps no history: a sample is the result of a call, so the source is read at the sampling
// interval. A function is looked up before it is called, because the loader would end the process
// if the installed driver lacks it; a function that a device does not support is not called again.
package nvmlsource

import "time"

// Settings of the source.
type Settings struct {
	Library   string        // path of the library; empty: the loader's
	Sampling  time.Duration // of the fast readings
	Slow      time.Duration // of the slow readings, of the list of devices and of processes
	GPM       bool          // read the ratios of GPU performance monitoring
	Processes bool          // read the memory of each process
}
