// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

// NestSpan is what Nest has to know of a span.
type NestSpan struct {
	Owner      uint64 // process or resource
	Device     int64  // Identity.Number; the streams of each device are numbered anew
	Stream     int64  // negative: on no stream, or not to be considered
	Trace      [16]byte
	Parent     [8]byte
	Start, End int64
}

const (
	// maxOthers bounds how many spans of other streams, or of threads that take turns on the stream, are passed over,
	// maxInside how many lie within one span; what is further away stays beside it.
	maxOthers, maxInside = 64, 1024
)

// Nest finds spans that run inside others on one stream though the trace has them side by side.
//
// A stream does one thing after the other. So where two spans of one stream have the same parent and one lies within
// the other, the inner one is a part of the outer one's work: a loop opens a phase and calls code that takes the step's
// context, and its sections hang below the step, beside the phase that encloses them.
//
//	step     ├──────────────────────────────────────┤
//	forward    ├────────────────┤                       parent: step
//	conv         ├──────┤                               parent: step; within forward
//	gemm                  ├──┤                          parent: step; within forward
//	backward                     ├──────────────┤       parent: step
//
// It calls adopt with the numbers of the two spans, the narrowest outer span first. adopt makes the outer span the
// parent of the inner one, here too. Spans are in order of their end, as they are exported; an inner span after its
// outer one is not found. The cost is that of looking at the span before on the same stream, and at those inside.
func Nest(spans []NestSpan, adopt func(inner, outer int)) {
	for i := range spans {
		outer := &spans[i]
		if outer.Stream < 0 {
			continue
		}
		others, inside := 0, 0
		for j := i - 1; j >= 0 && others < maxOthers && inside < maxInside; j-- {
			x := &spans[j]
			if x.Stream != outer.Stream || x.Device != outer.Device || x.Owner != outer.Owner {
				others++
				continue
			}
			sibling := x.Parent == outer.Parent && x.Trace == outer.Trace
			if x.Start < outer.Start {
				if sibling || x.End <= outer.Start {
					break // what lies within before it is a part of it, or there is nothing
				}
				others++
				continue
			}
			inside++
			if x.End <= outer.End && sibling {
				adopt(j, i)
			}
		}
	}
}
