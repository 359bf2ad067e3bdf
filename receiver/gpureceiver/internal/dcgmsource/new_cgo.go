// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package dcgmsource

import "github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"

// New returns the source.
func New(set Settings) gpudata.Source { return newSource(set, process) }
