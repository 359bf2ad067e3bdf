// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !cgo || !linux

package nvmlsource

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// New returns a source that cannot be opened: go-nvml needs cgo and Linux.
func New(Settings) gpudata.Source { return absent{} }

type absent struct{}

func (absent) Name() string { return "nvml" }
func (absent) Open() error {
	return fmt.Errorf("built without cgo or not for Linux: the NVML library cannot be loaded: %w", gpudata.ErrUnavailable)
}
func (absent) Devices() []gpusamplesextension.Device { return nil }
func (absent) Pace() time.Duration                   { return time.Second }
func (absent) Read(*gpudata.Batch) error             { return nil }
func (absent) Close() error                          { return nil }
