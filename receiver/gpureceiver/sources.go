// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"errors"
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/replaysource"
)

type absent struct{ name string }

func (a absent) Name() string                          { return a.name }
func (a absent) Open() error                           { return errors.New("not there yet") }
func (a absent) Devices() []gpusamplesextension.Device { return nil }
func (a absent) Pace() time.Duration                   { return time.Second }
func (a absent) Read(*gpudata.Batch) error             { return nil }
func (a absent) Close() error                          { return nil }
func newDCGM(*Config) gpudata.Source                   { return absent{"dcgm"} }
func newNVML(*Config) gpudata.Source                   { return absent{"nvml"} }
func newReplay(cfg *Config) gpudata.Source {
	return replaysource.New(cfg.Replay.File, cfg.Replay.Loop, cfg.Replay.Speed, time.Now)
}
