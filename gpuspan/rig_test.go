// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// set returns the default settings as changed by f.
func set(f func(*settings.Settings)) gpuspan.Option {
	s := settings.Default()
	f(&s)
	return gpuspan.WithSettings(s)
}

func slots(n int) gpuspan.Option { return set(func(s *settings.Settings) { s.Slots = n }) }

func syncMode(m settings.SyncMode) gpuspan.Option {
	return set(func(s *settings.Settings) { s.Sync = m })
}

// fromEnv returns the settings of the environment as changed by f.
func fromEnv(f func(*settings.Settings)) gpuspan.Option {
	s, err := settings.FromEnv()
	if err != nil {
		panic(err)
	}
	f(&s)
	return gpuspan.WithSettings(s)
}
