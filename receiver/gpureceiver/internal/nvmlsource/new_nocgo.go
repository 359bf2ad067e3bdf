// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !cgo || !linux

package nvmlsource

import "github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"

// New returns a source that cannot be opened: it is called with cgo and on Linux only.
func New(Settings) gpudata.Source { return gpudata.NotBuilt("nvml", "NVML") }
