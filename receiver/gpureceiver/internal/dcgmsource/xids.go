// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import "slices"

// seenXIDs remembers the XIDs that were counted, over sessions.
type seenXIDs struct {
	list   []seenXID
	primed bool // the events from before the first read are in it
}

type seenXID struct {
	device string
	ts     int64
	code   int64
}

// maxSeen bounds the memory; XIDs are rare, and those read again lie in the last minutes.
const maxSeen = 4096

func newSeenXIDs() *seenXIDs { return &seenXIDs{} }

// add says whether the event is new.
func (s *seenXIDs) add(device string, ts, code int64) bool {
	x := seenXID{device, ts, code}
	if slices.Contains(s.list, x) {
		return false
	}
	if len(s.list) == maxSeen {
		s.list = append(s.list[:0], s.list[maxSeen/2:]...)
	}
	s.list = append(s.list, x)
	return true
}
