// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

// NestSpan has the fields of a span that Nest reads.
type NestSpan struct {
	Owner      uint64 // process or resource
	Device     int64  // Identity.Number; each device numbers its streams separately
	Stream     int64  // negative: no stream, or to be ignored
	Trace      [16]byte
	Parent     [8]byte
	Start, End int64
}

const (
	// maxOthers limits how many spans of other streams, or of other threads that use the stream,
	// the search skips; maxInside limits how many spans are inside one span. Spans beyond these
	// limits stay siblings.
	maxOthers, maxInside = 64, 1024
)

// Nest finds spans that run inside others on one stream although the trace has them as siblings.
//
// A stream runs one thing after the other. So if two spans of one stream have the same parent and
// one is inside the other, the inner one is a part of the outer one's work: a loop opens a phase
// and calls code that uses the step's context, and its sections become children of the step,
// siblings of the phase that encloses them.
//
//	step     ├──────────────────────────────────────┤
//	forward    ├────────────────┤                       parent: step
//	conv         ├──────┤                               parent: step; inside forward
//	gemm                  ├──┤                          parent: step; inside forward
//	backward                     ├──────────────┤       parent: step
//
// Nest calls adopt with the indexes of the two spans, for the narrowest outer span first. adopt
// must make the outer span the parent of the inner one, in spans too. Spans are in order of their
// ends, as they are exported; Nest does not find an inner span after its outer one. The cost is one
// comparison with the previous span of the stream, and one with each span inside.
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
					break // the spans before it that are inside are a part of it
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
