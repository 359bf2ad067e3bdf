// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package engine

import "time"

// threadCPU is not known here.
func threadCPU() (time.Duration, bool) { return 0, false }
