// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package timeline keeps the events of devices and host threads in a profile, in the order of time,
// and finds the cause of each idle moment. It knows no findings and writes no sentences.
//
// A [Log] has the innermost range of a host thread at each moment. A [Splitter] divides a gap
// between two activities of a device among causes. It reads the log of the thread that launched the
// work which ended the gap first.
//
// # Rules and their limits
//
// If the work was launched before the gap began, the gap is launch latency up to [LatencyLimit],
// and a dependency above it. Otherwise the host was late, and each moment of the gap belongs to
//
//   - the loader, a wait for another rank, an allocation or another slow call of the runtime, if the host was in one;
//   - the synchronization, if the host was in a call that waits, or had returned from one and launched within
//     quietLimit or did nothing that has a name;
//   - the dispatch of work, if the host launched at most quietLimit before, or at most [PauseLimit] before and was in
//     nothing for longPiece: it launches as fast as it can;
//   - the host range around the moment in all other cases.
//
// The time between the end of the launching call and the start of the work is launch latency again.
//
// Memory is bounded: a log forgets what no device needs any more. When much is needed (a device is
// idle for long while the host does much), neighboring pieces are joined under the name of the
// longer one. Sums stay exact; names of pieces shorter than a 4,000th of such a gap may be the
// names of their neighbors.
package timeline
