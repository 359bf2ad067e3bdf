// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"hash/maphash"
)

// ref identifies a node of a slab. The zero ref is none.
type ref int32

const chunkNodes = 1 << 10

// slab holds nodes. They refer to one another by number, so that the garbage collector has no
// pointers to follow in up to a quarter of a million of them. A node never moves; released nodes
// are reused, by any device. The slab never shrinks: it holds at most the budget's nodes.
type slab struct {
	seed   maphash.Seed // of the indexes: keys come from outside the process
	chunks []*[chunkNodes]node
	spare  []ref
	made   ref // all nodes ever allocated
}

// take returns an empty node.
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

// at returns nil for the zero ref.
func (s *slab) at(r ref) *node {
	if r == 0 {
		return nil
	}
	return &s.chunks[(r-1)/chunkNodes][(r-1)%chunkNodes]
}

// hash returns the hash of a key in the indexes of all devices, never 0.
func (s *slab) hash(k *Key) uint32 {
	if s.seed == (maphash.Seed{}) {
		s.seed = maphash.MakeSeed()
	}
	return uint32(maphash.Comparable(s.seed, *k)) | 1<<31
}
