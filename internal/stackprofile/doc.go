// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package stackprofile aggregates GPU spans into profiles: GPU time, energy and idle time by stack.
//
//	spans ──Add──► pending spans ──Resolve──► stacks of a window ──Take──► Profile ──► OTLP, pprof, flame graph
//
// A stack runs from the root to the leaf: service, route or step, ranges of the host (modules,
// Python frames, operators), sections, then the kernel or copy. Parents end after their children,
// so a span waits until its tree has been quiet for some time; then the whole tree is resolved.
//
// # What a value means
//
//   - gpu_time is self time: the device time of a span less the part of it in which spans below it ran on the same
//     device. What runs at the same instant on two streams counts for both. Device ranges that a profiler derives from
//     ranges of the host have no GPU time; activities that were summed on a span count there.
//   - gpu_energy is gpu.self_energy, so that all samples together have what was attributed to spans. A span without it
//     has its gpu.energy less the energy of the spans below it.
//   - gpu_idle is the time between two activities of a device, charged to the stack of the later one.
//
// Every value goes to exactly one sample. Spans that arrive twice count once. A span that arrives
// after the span around it was counted adds only the time outside of it. Beyond the limit on
// stacks, values go to the stack "(other stacks)" of the service.
//
// Profilers' files state the ranges around each launch. [Total] adds their values without spans.
package stackprofile
