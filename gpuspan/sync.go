// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// syncOption is a [StreamOption] and an [OperationOption].
type syncOption settings.SyncMode

// Sync sets when GPU times are read: for all sections of a stream or of an operation. The operation's mode wins over
// the stream's, and that over the profiler's ([settings.Settings.Sync]).
func Sync(m settings.SyncMode) interface {
	StreamOption
	OperationOption
} {
	return syncOption(m)
}

func (m syncOption) applyStream(c *engine.StreamConfig) { c.Sync = settings.SyncMode(m) }

func (m syncOption) applyOperation(c *engine.OperationConfig) { c.Sync = settings.SyncMode(m) }
