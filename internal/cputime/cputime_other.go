// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cputime

import "time"

var began = time.Now()

// Used returns the elapsed time, because the CPU time is not available here.
func Used() time.Duration { return time.Since(began) }
