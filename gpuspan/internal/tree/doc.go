// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package tree relates sections to each other: sections within sections, sections to steps, steps to loops.
//
// An [Assembler] takes placed sections and returns [Finished] values, parents before children, with the sums of what
// each contains. [Loop] and [Step] are the caller's side of steps; a step ends when its sections have.
//
// Invariants:
//   - A step's duration is the sum of its phases, minus their overlap, plus what no phase covers; none is negative.
//   - The end event of a step is the start of the next: steps follow each other without a gap.
//   - A step's span ends once, also when the device does not finish it.
package tree
