// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"encoding/binary"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// sharedIDs are the groups of processes that send spans with equal IDs: the ranks of a job, whose
// trainer seeds the generator of IDs alike, or the processes of a service, which were forked after
// seeding. From the first such span on, their spans have parents in their own process only. In
// general a parent may be in another process, so the process is no part of a span's identity while
// IDs are unique.
type sharedIDs struct {
	mu     sync.Mutex
	groups map[uint64]bool
}

// maxSharing bounds the groups.
const maxSharing = 1 << 12

func (s *sharedIDs) contains(group uint64) bool {
	if s == nil || group == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[group]
}

// add returns false if the group is known, or cannot be.
func (s *sharedIDs) add(group uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups[group] || len(s.groups) >= maxSharing {
		return false
	}
	if s.groups == nil {
		s.groups = map[uint64]bool{}
	}
	s.groups[group] = true
	return true
}

// own returns the ID of a span within its process, if the process shares IDs with others.
func (r *resourceInfo) own(id [8]byte) [8]byte {
	if r.sharesIDs && id != ([8]byte{}) {
		binary.LittleEndian.PutUint64(id[:], binary.LittleEndian.Uint64(id[:])^r.process)
	}
	return id
}

// Flags of a span that state whether its parent is in another process.
const remoteKnown, remoteParent = 0x100, 0x200

// ownParent returns the parent of a span as own does. A parent in another process keeps its ID.
func (r *resourceInfo) ownParent(s ptrace.Span, parent [8]byte) [8]byte {
	if s.Flags()&(remoteKnown|remoteParent) == remoteKnown|remoteParent {
		return parent
	}
	return r.own(parent)
}

// checkedElsewhere is how many spans of a request are compared with the spans of other physical
// GPUs: processes that share IDs share nearly all of them.
const checkedElsewhere = 16

// findSharedIDs finds processes that send other spans with IDs that are known, and returns true if
// there are new ones: then the request must be read again. The caller holds the lock, and the spans
// have their hashes.
func (e *engine) findSharedIDs(b *batch) (found bool) {
	checked := 0
	for i, p := range b.joinable() {
		r := p.res
		if r.group == 0 || r.sharesIDs {
			continue
		}
		other := p.board.dev.OtherSpan(&b.shares[i])
		if !other && len(e.boards) > 1 && checked < checkedElsewhere {
			checked++
			for _, o := range e.boards {
				other = other || o.dev.OtherSpan(&b.shares[i])
			}
		}
		if other && e.shared.add(r.group) {
			found = true
		}
	}
	return found
}

// reunite moves what waits for spans by the IDs that they shared to the spans.
func (e *engine) reunite(b *batch) {
	for i, p := range b.joinable() {
		if p.res.sharesIDs {
			k := b.spans[i].Key
			span := k.Span
			k.Span = p.res.own(span) // applied twice, it is the ID on the wire
			p.board.dev.Pass(k, span)
		}
	}
}
