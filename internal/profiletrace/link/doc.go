// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package link sweeps over the events of a profile in the order of time, finds out what belongs to
// what, and collects the facts that follow.
//
// Host ranges of one thread nest by time. An activity of the device belongs to the host call with
// its correlation: its parent is the nearest range around that call that the visitor keeps, and its
// step is the step whose host range holds the call. Without such a call (launched before the
// profile began) it belongs to the window. The launch of a graph is one call; what its nodes are is
// found in the record of the graph's capture (see [Captures]).
//
// A [Visitor] gets every range and activity, so that one sweep serves whatever is made from a
// profile. What grows is the host ranges that are open at one instant of the trace.
package link
