// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// ref names a node of a slab. The zero ref is none.
type ref int32

const chunkNodes = 1 << 10

// slab holds nodes. They name one another by number, so the collector of garbage has nothing to follow in what may be
// a quarter of a million of them. A node keeps its place in memory; given back, it is used again, by whichever device
// comes first. What was needed once stays: at most the budget's nodes.
type slab struct {
	chunks []*[chunkNodes]node
	spare  []ref
	made   ref // nodes that were ever taken
}

// take returns a node without content.
func (s *slab) take() *node {
	var r ref
	if i := len(s.spare) - 1; i >= 0 {
		r, s.spare = s.spare[i], s.spare[:i]
	} else {
		if int(s.made)%chunkNodes == 0 {
			s.chunks = append(s.chunks, new([chunkNodes]node))
		}
		s.made++
		r = s.made
	}
	n := s.at(r)
	*n = node{self: r}
	return n
}

func (s *slab) give(n *node) { s.spare = append(s.spare, n.self) }

// at is nil for the zero ref.
func (s *slab) at(r ref) *node {
	if r == 0 {
		return nil
	}
	return &s.chunks[(r-1)/chunkNodes][(r-1)%chunkNodes]
}
