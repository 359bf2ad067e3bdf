// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// nesting divides the time of operators that contain others on one row of a TPU, such as loops and
// conditionals: what runs inside counts once, as the inner operator. The outer one has the times
// between the inner ones, as several activities without work, because its own statistics repeat the
// work inside.
type nesting struct {
	add  func(*event.Event) error
	row  *line
	open []operator // outer ones first
}

// operator is an event whose end was not reached.
type operator struct {
	event.Event
	from   int64 // until then its time was assigned
	filled bool  // it contains another one
}

// put takes an operator of a row. Operators of a row start in the order of time.
func (n *nesting) put(row *line, e *event.Event) error {
	last := len(n.open) - 1
	if row != n.row || last >= 0 && e.Start < n.open[last].Start {
		if err := n.flush(); err != nil {
			return err
		}
	}
	n.row = row
	if err := n.closeUntil(e.Start); err != nil {
		return err
	}
	if last = len(n.open) - 1; last >= 0 {
		if err := n.own(&n.open[last], e.Start); err != nil {
			return err
		}
		n.open[last].from = max(n.open[last].from, e.End())
		n.open[last].filled = true
	}
	n.open = append(n.open, operator{Event: *e, from: e.Start})
	return nil
}

// own adds the time of an outer operator itself until to.
func (n *nesting) own(o *operator, to int64) error {
	if to <= o.from {
		return nil
	}
	e := o.Event
	e.Start, e.Duration = o.from, to-o.from
	e.Detail.FLOPs, e.Detail.Traffic, e.Detail.Elements = 0, 0, 0
	o.from = to
	return n.add(&e)
}

// closeUntil closes the operators that end by t.
func (n *nesting) closeUntil(t int64) error {
	for last := len(n.open) - 1; last >= 0 && n.open[last].End() <= t; last-- {
		o := n.open[last]
		n.open = n.open[:last]
		var err error
		if o.filled {
			err = n.own(&o, o.End())
		} else {
			err = n.add(&o.Event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// flush closes all operators.
func (n *nesting) flush() error { return n.closeUntil(math.MaxInt64) }
