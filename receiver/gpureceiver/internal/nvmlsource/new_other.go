// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64) || gpuspan_static

package nvmlsource

import "github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"

// New returns a source that cannot be opened: a static binary loads no library, and NVML is loaded
// on Linux only, on amd64 and arm64.
func New(Settings) gpudata.Source { return gpudata.NotBuilt("nvml", "NVML") }

// NewProcesses returns a source that cannot be opened either.
func NewProcesses(string) gpudata.ProcessSource { return noProcesses{} }

type noProcesses struct{}

func (noProcesses) Open() error                                                 { return New(Settings{}).Open() }
func (noProcesses) Read(func(string) int64, bool) ([]gpudata.ProcessUse, error) { return nil, nil }
func (noProcesses) Close() error                                                { return nil }
