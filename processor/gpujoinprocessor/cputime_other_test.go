// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package gpujoinprocessor

import "time"

var began = time.Now()

// cpuTime is the elapsed time where the CPU time is not to be had.
func cpuTime() time.Duration { return time.Since(began) }
