// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import "time"

// Experts sums exchanges of tokens between ranks with experts: all-to-alls of which both sizes are
// known.
type Experts struct {
	Count          int64
	Sent, Received int64 // elements
	Unequal        int64 // sum of the differences between sent and received
	Exposed        time.Duration
	Unhidden       float64 // elements that moved in exposed time
	Rate           float64 // highest, elements per ns
}

// add adds an exchange. The larger side determines its minimum time.
func (e *Experts) add(a *active) {
	if a.sent <= 0 || a.received <= 0 || a.duration <= 0 {
		return
	}
	size := float64(max(a.sent, a.received))
	e.Count++
	e.Sent += a.sent
	e.Received += a.received
	e.Unequal += max(a.sent-a.received, a.received-a.sent)
	e.Exposed += a.exposed
	e.Unhidden += size * float64(a.exposed) / float64(a.duration)
	e.Rate = max(e.Rate, size/float64(a.duration))
}

// Uneven returns by how much the two sides of the exchanges differ, as a part of their mean.
func (e *Experts) Uneven() float64 {
	if e.Count == 0 {
		return 0
	}
	return 2 * float64(e.Unequal) / float64(e.Sent+e.Received)
}

// Waiting returns the exposed time of the exchanges beyond their time at the highest observed rate;
// 0 if there are too few exchanges to know that rate.
func (e *Experts) Waiting() time.Duration {
	if e.Count < leastRepeats {
		return 0
	}
	return max(0, e.Exposed-time.Duration(e.Unhidden/e.Rate))
}
