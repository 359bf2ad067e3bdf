// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"cmp"
	"slices"
)

// Order sorts the spans of a batch so that children precede their parents. Times do not give that order: a section on
// an idle stream begins before the one around it, whose stream is still busy, and the device's clock is known to
// within an error. The zero value is ready; its memory is reused.
type Order struct {
	index map[Key]int
	path  []int
	spans []orderedSpan
	order []int
}

type orderedSpan struct {
	parent Key
	depth  int // number of ancestors in the batch, plus one
}

// Reset begins a new batch.
func (o *Order) Reset() {
	clear(o.index)
	o.spans, o.order = o.spans[:0], o.order[:0]
}

// Add adds the next span of the batch.
func (o *Order) Add(key, parent Key) {
	if o.index == nil {
		o.index = map[Key]int{}
	}
	if !key.Span.IsEmpty() {
		o.index[key] = len(o.spans)
	}
	o.spans = append(o.spans, orderedSpan{parent: parent})
}

// ChildrenFirst returns the indexes of the spans, children before parents and otherwise in the order in which they
// were added. A cycle of parents ends where it began. The slice is valid until the next Reset.
func (o *Order) ChildrenFirst() []int {
	const onPath = -1
	for i := range o.spans {
		at, depth := i, o.spans[i].depth
		for depth == 0 {
			o.spans[at].depth = onPath
			o.path = append(o.path, at)
			up, ok := o.index[o.spans[at].parent]
			if !ok {
				break
			}
			at, depth = up, o.spans[up].depth
		}
		depth = max(depth, 0)
		for _, at := range slices.Backward(o.path) {
			depth++
			o.spans[at].depth = depth
		}
		o.path = o.path[:0]
		o.order = append(o.order, i)
	}
	slices.SortStableFunc(o.order, func(i, j int) int { return cmp.Compare(o.spans[j].depth, o.spans[i].depth) })
	return o.order
}
