// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

// SyncOption is an [Option], a [StreamOption] and an [OperationOption].
type SyncOption SyncMode

// Sync sets when GPU times are read: for all sections of a profiler, of a stream or of an operation. The operation's mode wins over
// the stream's, and that over the profiler's.
func Sync(m SyncMode) SyncOption { return SyncOption(m) }

func (m SyncOption) apply(c *config) { c.Sync = SyncMode(m) }

func (m SyncOption) applyStream(c *streamConfig) { c.sync = SyncMode(m) }

func (m SyncOption) applyOperation(o *Operation) { o.sync = SyncMode(m) }
