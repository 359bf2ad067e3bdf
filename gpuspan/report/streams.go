// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"time"
)

// A stream does one thing after the other. So where one outermost section lies within another of its stream it is part
// of that one's work, whatever context it was started with, as a section within a phase that is started with the step's
// context:
//
//	optimizer  ├────────────┤   outermost
//	adamw        ├────────┤     outermost by its context; within optimizer
//
// Its time is in the other's already. gpu_join and gpu_metrics nest spans by the same rule.
type streams map[streamKey]*[]run

type streamKey struct{ device, stream int }

// run is an outermost timed section that no later one enclosed so far.
type run struct {
	start, end int64 // unix nanoseconds
	node       Node
}

// maxRuns bounds what is remembered of a stream: as many runs may lie within one section. maxStreams bounds the
// streams.
const maxRuns, maxStreams = 1024, 1024

// add takes a run, in the order of ends as a profiler reports a stream's, and calls inside with the node and the time
// of each that lies within it.
func (s *streams) add(k streamKey, r run, inside func(Node, time.Duration)) {
	if *s == nil {
		*s = streams{}
	}
	list, ok := (*s)[k]
	if !ok {
		if len(*s) == maxStreams {
			return
		}
		list = new([]run)
		(*s)[k] = list
	}
	n := len(*list)
	for n > 0 && (*list)[n-1].start >= r.start {
		n--
	}
	kept := (*list)[:n]
	for _, in := range (*list)[n:] {
		if in.end <= r.end {
			inside(in.node, time.Duration(in.end-in.start))
		} else {
			kept = append(kept, in)
		}
	}
	if len(kept) == maxRuns {
		kept = slices.Delete(kept, 0, maxRuns/2)
	}
	*list = append(kept, r)
}

// within finds for each outermost node the one that all of its time lies in.
func (c *Collector) within() map[Node]Node {
	out := map[Node]Node{}
	for _, n := range c.nodes[0].order {
		nd := c.nodes[n]
		for _, m := range c.nodes[0].order { // in a fixed order
			if t := nd.within[m]; t > 0 && t == nd.all.total && !leads(out, m, n) {
				out[n] = m
				break
			}
		}
	}
	return out
}

// leads reports whether the way up from m comes to n.
func leads(up map[Node]Node, m, n Node) bool {
	for ok := true; ok; m, ok = up[m] {
		if m == n {
			return true
		}
	}
	return false
}
