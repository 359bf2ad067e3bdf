// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ncclinspector reads what NCCL's profiler plugin Inspector writes about collectives, and
// finds the rank that is late and the communicator that is slow.
//
// Inspector appends one JSON object a line to a file for each process (NVIDIA/nccl,
// plugins/profiler/inspector). A line states how long the kernel of a collective ran on one rank,
// and not when. A kernel runs until all ranks have arrived, so that the rank whose kernel is the
// shortest arrived last, and the others waited for it for the difference. That is all the evidence
// there is: the cause of the lateness is not in the files.
//
//   - [Parser] reads lines.
//   - [Job] matches the collectives of all ranks in bounded memory.
//   - [Job.Findings] names late ranks by the tests of package straggler, and slow communicators by
//     their sisters.
package ncclinspector
