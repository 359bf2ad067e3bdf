// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package emit writes the nodes and activities of a sweep as spans, with summaries of what has no
// span and findings as span events.
//
// The level decides which events become spans; if the limits of a trace allow fewer, a selecting
// sweep keeps steps first, then whatever is longest. Where the program has several processors and
// the level brings many spans, the sweep runs in a separate goroutine and hands over what is to be
// a span.
package emit
