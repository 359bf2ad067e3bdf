// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package clockmap places GPU times on the host's clock and bounds the error.
//
// A GPU event carries a stamp of the GPU's own clock, which the driver reveals only as a difference of two events in
// float32 milliseconds. An anchor is an event that was recorded on an idle stream between two reads of the host's
// clock: its stamp certainly lies between them. From the anchors of the last seconds a [Map] computes
//
//   - an estimate: rate by least squares over the tight anchors, offset by the middle of the intersection of all
//     anchor intervals projected with that rate, and
//   - a bound, which does not depend on the estimate: every pair of anchors limits the rate, every anchor limits the
//     position, and the intersection of all limits is an interval that contains the truth.
//
// The bound holds as long as three things hold, each of which is an option: event stamps are truncated to at most Tick;
// the rates of the two clocks differ by at most MaxDrift; and that difference changes by at most MaxRateChange at once
// (time daemons slew the host's clock in steps of about one part per million) and MaxSlew per second besides
// (oscillators follow their temperature). The roundings of float32 are relative, at most 2^-24 each, so they count as
// one more change of rate and need no term of their own. When anchors contradict the assumptions, that is an anomaly:
// it is counted, the older half of the window is forgotten and the limits are doubled until the contradiction has left
// the window.
//
// A constant asymmetry between the latency of submission and of completion stays in the estimate (about a
// microsecond); no method that only sees both ends can remove it, and it is inside the bound.
//
// [Anchorer] makes the anchors: bursts of probes on a private stream, dense at first, then every 60 ms, none while
// nothing runs. Sections are read at once and placed when the next anchor brackets them, so that a jump of one clock
// against the other is seen.
package clockmap
