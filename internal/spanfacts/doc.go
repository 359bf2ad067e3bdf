// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spanfacts says what a GPU span says. Every component that reads spans reads them here, so that all of them
// believe the same things:
//
//   - which spans are GPU spans, and which of those are GPU work (Kind);
//   - on which device the work ran: the span says it, else its scope, else its resource (Scope, Identity);
//   - how long the device worked, and whether that time is the device's or the host's (Facts.Time, Facts.HostTimed);
//   - which numbers count: NaN, infinite and, for amounts, negative values count as absent (Number, Positive);
//   - which span lies within which (Nest), in which order children come before parents (Order), and what becomes of
//     sums whose span has not come yet (Waiting);
//   - how a batch is shared among the requests that it links to (Shares).
//
// A span is read by one walk over its attributes, without allocations. What a value means is in semconv/registry.
package spanfacts
