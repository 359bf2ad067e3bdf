// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import "github.com/otelgpu/otelgpu/internal/gputrace/verdict"

// launch is a host call that may have put work on a device.
type launch struct {
	start, end int64
	node       *node
	process    *process
	step       *step
	work       *work        // of the outermost operator around it whose work is known
	opaque     bool         // within a compiled region
	graph      bool         // it launches a graph
	opStart    int64        // begin of the innermost operator around it
	op         uint32       // innermost operator around it, by name
	around     uint32       // innermost annotation or module around it
	in         uint32       // innermost range around it that has a name of its own, no call
	thread     uint32       // its track
	phase      uint32       // outermost annotation around it that is no step and has no number; 0: none
	previous   int64        // end of the launch before, of the same thread or of the main one
	unit       verdict.Unit // that it is of
}

// launchMemory bounds the launches that are remembered, the latest; a stream queues some 1,000.
const launchMemory = 1 << 16
