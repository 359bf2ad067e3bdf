// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// set changes settings of the environment.
func set(f func(*settings.Settings)) gpuspan.Option { return gpuspan.WithSettings(f) }

func slots(n int) gpuspan.Option { return set(func(s *settings.Settings) { s.Slots = n }) }

func syncMode(m settings.SyncMode) gpuspan.Option {
	return set(func(s *settings.Settings) { s.Sync = m })
}
