// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"maps"
	"slices"
)

// transfers returns the point-to-point operations in which ranks wait. A rank waits for its peer
// unless the peer is in the opposite operation with the rank.
func (j *job) transfers() (all []*wait) {
	for _, g := range j.groups {
		if len(g.members) == 0 {
			continue
		}
		for _, rank := range slices.Sorted(maps.Keys(g.byRank)) {
			for i := range j.dumps[rank].Entries {
				e := &j.dumps[rank].Entries[i]
				if !e.PointToPoint || e.finished() || e.Group != g.name || e.Peer < 0 || e.Peer >= len(g.members) {
					continue
				}
				if w := j.transfer(g, rank, e); w != nil {
					all = append(all, w)
				}
				break // later ones of the rank wait for this one
			}
		}
	}
	return all
}

func (j *job) transfer(g *group, rank int, e *Entry) *wait {
	peer := g.members[e.Peer]
	w := &wait{group: g.name, sequence: e.Sequence}
	w.see(j, rank, e, true)
	self := slices.Index(g.members, rank)
	switch o := j.current[peer]; {
	case j.dumps[peer] == nil:
		w.dead = []int{peer}
	case o == nil || !o.PointToPoint || o.Group != e.Group || o.Peer != self || o.Operation == e.Operation:
		w.absent = []int{peer} // it may wait in another operation
	case peer < rank:
		return nil // both are in it, and the peer reports it
	default:
		w.waiting = []int{rank, peer}
	}
	return w
}
