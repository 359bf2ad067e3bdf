// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import "bytes"

// Event is one element of traceEvents. Slices are raw JSON within the window: strings of Cat and Name without their
// quotes, everything else as it stands in the file. Absent fields are empty.
type Event struct {
	Phase   byte // of ph, 0 when absent
	Cat     []byte
	Name    []byte
	Escaped bool // Cat or Name hold escapes: see Text
	PID     []byte
	TID     []byte
	TS      []byte // microseconds: see Micros
	Dur     []byte
	Args    []byte // the object with its brackets
}

// eventKey is the number of a field of Event, 0 for every other key.
func eventKey(key []byte) int {
	switch string(key) {
	case "ph":
		return keyPhase
	case "cat":
		return keyCat
	case "name":
		return keyName
	case "pid":
		return keyPID
	case "tid":
		return keyTID
	case "ts":
		return keyTS
	case "dur":
		return keyDur
	case "args":
		return keyArgs
	}
	return 0
}

const (
	keyPhase = iota + 1
	keyCat
	keyName
	keyPID
	keyTID
	keyTS
	keyDur
	keyArgs
)

// parse reads the object at b[i], which is its opening bracket. What follows a phase that is not wanted is passed over.
func (e *Event) parse(b []byte, i int, known *layouts, wants func(phase byte) bool) (next int, err error) {
	*e = Event{}
	object, l := i, &known[0]
	for n := 0; ; n++ {
		id, at, err := l.member(b, i, n, eventKey)
		if err != nil || id == last {
			return at, err
		}
		if i, err = skip(b, at); err != nil {
			return i, err
		}
		switch v := b[at:i]; id {
		case keyPhase:
			if len(v) >= 3 && v[0] == '"' {
				e.Phase = v[1]
			}
			if !wants(e.Phase) {
				return skip(b, object)
			}
			l = &known[e.Phase%uint8(len(known))]
		case keyCat:
			e.Cat = e.text(v)
		case keyName:
			e.Name = e.text(v)
		case keyPID:
			e.PID = v
		case keyTID:
			e.TID = v
		case keyTS:
			e.TS = v
		case keyDur:
			e.Dur = v
		case keyArgs:
			if v[0] == '{' {
				e.Args = v
			}
		}
	}
}

// layouts are those of events, by phase once that is known.
type layouts [16]Layout

func (e *Event) text(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	v = v[1 : len(v)-1]
	if bytes.IndexByte(v, '\\') >= 0 {
		e.Escaped = true
	}
	return v
}
