// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package attribution divides what a device's counter counted (joules, usually) among the spans
// that used the device, online, while spans of several processes arrive in any order.
//
// Rule: at each instant the device's flow is divided equally among the processes that have an
// innermost active span, and within a process equally among those spans. A span is innermost while
// none of its descendants is active. A span's value is its own part plus the parts of all its
// descendants. Spans that were timed on the host, which only surround work of the device, have
// parts while no other span of their process is active. So a parent never has less than its
// children, and all own parts plus the unattributed energy are the device's total, by construction.
//
// Where it is known how all processes of the device share it (see [Sharing]), a process with spans
// has its own share instead of an equal part.
//
// Equal parts "per outermost span" were refused: an ancestor ends last and arrives after its
// children had to leave, and a process that idles inside an open span would take from a neighbour
// that works. The price: within one process, a request that runs on three streams gets three parts.
//
// A Device holds one settled time T that only moves forward. Everything before T is attributed
// permanently:
//
//	        late arrivals take              points of pending spans,
//	        what is still free              by time
//	───────┬──────┬──────────┬─────┬──────┬──┬───┬────┬──────────────► time
//	       │ free │ dealt out│free │dealt │T │   │    │
//	       └──────┴──────────┴─────┴──────┘
//
// Settle moves T and pops the points on its way. Between two points it only advances V, the
// integral of dC divided by the number of active processes; each process advances its own integral
// of dV divided by its innermost spans when it is touched. A span's own part is the difference of
// that integral between entering and leaving the innermost set. No step compares pairs of spans: a
// span costs O(log n + depth).
//
// The package knows nothing of the Collector. Nothing in it is safe for use by several goroutines
// at once.
package attribution
