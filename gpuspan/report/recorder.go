// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

// Recorder receives what a profiler has measured. Node, Section, Untimed and Step are called by one goroutine, the one
// that reads the events back, and must not block; Summary and Reset may be called by any goroutine at any time.
type Recorder interface {
	// Node numbers an operation below its parent's node. The same parent and name give the same node for the life of
	// the Recorder, so callers may keep it.
	Node(parent Node, op Info) Node
	// Section adds one finished run.
	Section(n Node, s Sample)
	// Untimed adds the declared work of count runs that were not timed one by one, as of unsampled parents. Zero runs add
	// work to runs that are counted, as of a further precision.
	Untimed(n Node, count int64, s Sample)
	// Step adds one finished step of a loop.
	Step(loop string, s StepSample)
	// Summary is a copy of everything so far.
	Summary() Summary
	// Reset forgets all figures. Nodes stay valid.
	Reset()
}

// Sketch summarises a stream of durations in bounded memory.
type Sketch interface {
	// Add takes one duration in seconds, greater than or equal to 0.
	Add(seconds float64)
	// Quantile is the value at q in [0, 1] in seconds; false when nothing was added.
	Quantile(q float64) (float64, bool)
}
