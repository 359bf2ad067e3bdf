// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package benchmarks

import "testing"

// cpuMeter measures on Linux only.
type cpuMeter struct{}

func newCPUMeter(*testing.B) *cpuMeter { return &cpuMeter{} }

func (*cpuMeter) start()            {}
func (*cpuMeter) stop()             {}
func (*cpuMeter) report(*testing.B) {}
