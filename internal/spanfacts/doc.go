// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spanfacts reads GPU spans. Every component that reads spans uses it, so that all of them
// agree on:
//
//   - which spans are GPU spans, and which GPU spans are GPU work (Kind);
//   - on which device the work ran: as the span, its scope, or its resource states it, in this order (Scope, Identity);
//   - how long the device worked, and whether that time was measured by the device or the host (Facts.Time,
//     Facts.HostTimed);
//   - which numbers count: NaN, infinite and, for amounts, negative values count as absent (Number, Positive);
//   - which span is inside which (Nest), and of which process a span is (Resource.Process);
//   - how a batch is divided among the requests that it links to (Shares).
//
// Load reads a span by one pass over its attributes, without allocations. semconv/registry defines
// what the values mean.
package spanfacts
