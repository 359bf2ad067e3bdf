// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package servermetrics

import (
	"strings"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Counts writes how many requests servers run. The zero value is ready to use.
type Counts struct {
	last map[devicesamples.LoadSeries]*busyPage
}

// busyPage is what a server without a gauge of running requests counted at a time.
type busyPage struct {
	time  int64
	ended map[string]busy // by model
}

// busy is the time of requests that have ended, and their number.
type busy struct {
	us, requests   float64
	timed, counted bool // whether they are on the page
}

// maxCounts bounds the servers whose counters are remembered.
const maxCounts = 1 << 10

// Write writes what a page, read at time t (Unix nanoseconds), states; false if it does not state
// how many requests run.
//
// A counter of the time of requests rises when they have ended, by all of their time. Its increase
// is spread over their mean duration, which the counter of ended requests tells: they ran before the
// middle of the interval in which they ended.
func (c *Counts) Write(w devicesamples.LoadWriter, s devicesamples.LoadSeries, p *Page, t int64) bool {
	if n, ok := p.Running(); ok {
		w.WriteLoad(s, t, n)
		return true
	}
	now := &busyPage{t, map[string]busy{}}
	for _, v := range p.Values() {
		_, labels, _ := strings.Cut(v.Key, ",")
		b := now.ended[labels]
		switch v.Quantity {
		case BusyTime:
			b.us, b.timed = v.Value, true
		case Requests:
			b.requests, b.counted = v.Value, true
		default:
			continue
		}
		now.ended[labels] = b
	}
	known := false
	for _, b := range now.ended {
		known = known || b.timed && b.counted
	}
	if !known {
		return false
	}
	before := c.last[s]
	if before != nil && t <= before.time {
		return true // repeated or late
	}
	if c.last == nil || len(c.last) >= maxCounts && before == nil {
		c.last = map[devicesamples.LoadSeries]*busyPage{}
	}
	c.last[s] = now
	if before == nil {
		return true
	}
	middle := before.time + (t-before.time)/2
	w.WriteLoad(s, middle, 0)
	for labels, b := range now.ended {
		if !b.timed || !b.counted {
			continue
		}
		n, us := b.requests-before.ended[labels].requests, b.us-before.ended[labels].us
		if n > 0 && us >= 0 { // else the server was restarted
			w.AddLoad(s, middle-int64(us/n*1e3), middle, n)
		}
	}
	return true
}
