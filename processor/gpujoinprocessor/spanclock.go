// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/internal/plausibility"
)

const (
	// spanAhead is by how much spans may end after they arrive. Clocks that are synchronized differ
	// by less.
	spanAhead = 2 * time.Second
	// spanBehind is how old even the newest spans of a process must be when they arrive, in
	// behindCount arrivals within at least behindWindow, before it is reported. Exporters wait 5 s.
	spanBehind, behindWindow, behindCount = 30 * time.Second, 30 * time.Second, 10
	// aheadCount is how many batches must arrive early before it is certain.
	aheadCount = 3
)

// spanClocks compare the clocks of processes that send spans with the clock of the samples.
type spanClocks struct {
	mu sync.Mutex
	of map[uint64]*spanClock // by process
}

// spanClock is what the arrivals of one process show. Times are Unix nanoseconds.
type spanClock struct {
	since, least  int64 // of the window
	arrivals      int
	early         int  // arrivals that were ahead
	ahead, behind bool // reported
}

// arrive adds the newest span of a batch. age is the time since its end, by the clock of samples.
func (c *spanClocks) arrive(x *resourceInfo, now, age int64, report func(plausibility.Contradiction)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.of[x.process]
	if p == nil {
		if c.of == nil || len(c.of) >= maxServers {
			c.of = map[uint64]*spanClock{}
		}
		p = &spanClock{}
		c.of[x.process] = p
	}
	found := ""
	switch {
	case age < -int64(spanAhead):
		if p.early++; p.early < aheadCount {
			break
		}
		if !p.ahead {
			p.ahead = true
			found = fmt.Sprintf("a span ended %.3g s after it arrived", -float64(age)*1e-9)
		}
	case p.arrivals == 0 || age < int64(spanBehind):
		p.since, p.least, p.arrivals = now, age, 1
	default:
		p.least = min(p.least, age)
		if p.arrivals++; p.arrivals >= behindCount && now-p.since >= int64(behindWindow) && !p.behind {
			p.behind = true
			found = fmt.Sprintf("each of %d batches arrived at least %.3g s after its spans had ended", p.arrivals,
				float64(p.least)*1e-9)
		}
	}
	if found != "" {
		reason := plausibility.SpanAhead
		if age > 0 {
			reason = plausibility.SpanBehind
		}
		report(plausibility.Contradiction{
			Source: serverSource(x.service), Reason: reason, Found: found, Other: "the clock of the samples",
		})
	}
}
