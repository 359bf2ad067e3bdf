// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package finding says where the time of a device went and what would be gained by a change.
//
// A [Device] takes the activities of one device in the order of their starts. Every nanosecond from the first start to
// the last end is one of
//
//	computing              a kernel that is no collective runs (communication and copies beside it are hidden)
//	exposed communication  else a collective runs
//	exposed copying        else a copy, a memset or a page migration runs
//	idle                   else, with exactly one [Cause]
//
// so that the parts add up to the window. The cause of idle time is found in what the threads of the host did in it:
// each thread has a [Log] of its innermost range at each moment, and the thread that launched the work which ended the
// gap is asked first. A [Report] holds the sums, and its findings, the largest gain first.
//
// # Rules and their limits
//
// A gap ends with the work that the device begins. Where that work was launched before the gap began, the gap is launch
// latency up to [latencyLimit], and a dependency above it. Else the host was late, and each moment of the gap belongs
// to
//
//   - the loader, a wait for another rank, an allocation or another slow call of the runtime, if the host was in one;
//   - the synchronization, if the host was in a call that waits, or had come out of one and launched within
//     [quietLimit] or did nothing that has a name;
//   - the dispatch of work, if the host launched at most [quietLimit] before, or at most [pauseLimit] before and was in
//     nothing for [longPiece]: it launches as fast as it can;
//   - the host range around, else.
//
// What lies between the end of the launching call and the begin of the work is launch latency again.
//
// Memory is bounded: a log forgets what no device needs any more, and when much is needed (a device is idle for long
// while the host does much) neighbouring pieces are joined under the name of the longer one. Sums stay exact then;
// names of pieces shorter than a 4,000th of such a gap may be those of their neighbours.
package verdict
