// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

import (
	"bytes"
	"slices"
)

// Event is one element of traceEvents. Slices are raw JSON within the window: strings of Cat and
// Name without their quotes, everything else as it is in the file. Absent fields are empty.
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

// eventKey returns the number of a field of Event, 0 for every other key.
func eventKey(key []byte) int { return max(0, slices.Index(eventKeys[:], string(key))) }

var eventKeys = [...]string{
	keyCat: "cat", keyName: "name", keyPID: "pid", keyTID: "tid", keyTS: "ts", keyDur: "dur", keyArgs: "args",
	keyPhase: "ph",
}

const (
	keyCat = iota + 1
	keyName
	keyPID
	keyTID
	keyTS
	keyDur
	keyArgs
	keyPhase
)

// seldom are the fields whose values are mostly equal to an earlier event's.
const seldom = 1<<keyPhase | 1<<keyCat | 1<<keyPID | 1<<keyTID

// parsed holds where the values of an event are, by the numbers of their keys. The first is for the
// key that was read last among the phase and the keys without a number.
type parsed struct {
	values [8]value
	phase  byte
	end    int32 // of the event in the window
	events int64 // elements that are objects so far, this one included
}

type value struct{ from, to int32 }

func (v value) of(b []byte) []byte { return b[v.from:v.to] }

// parse reads the object at b[i], which is its opening bracket. The rest of events with an unwanted
// phase is skipped.
func (p *parsed) parse(b []byte, i int, l *Layout, wants *[256]bool) (next int, err error) {
	*p = parsed{}
	v := &p.values
	object, s := i, &l.start
	for {
		if t := s.likely; t.is(b, i) {
			s = t
		} else if s, err = l.after(s, b, i, eventKey); err != nil {
			return i, err
		}
		for _, f := range s.fields {
			v[f.id%uint8(len(v))] = value{int32(i) + int32(f.from), int32(i) + int32(f.to)}
		}
		if s.has(keyPhase) && !wants[p.setPhase(v[keyPhase%len(v)].of(b))] {
			return skip(b, object)
		}
		switch i += len(s.text); s.id {
		case last:
			return i, nil
		case broken:
			continue
		}
		at := space(b, i)
		if i, err = skip(b, at); err != nil {
			return i, err
		}
		v[uint(s.id)%uint(len(v))] = value{int32(at), int32(i)}
		if s.id == keyPhase && !wants[p.setPhase(v[keyPhase%len(v)].of(b))] {
			return skip(b, object)
		}
	}
}

func (p *parsed) setPhase(v []byte) byte {
	if len(v) >= 3 && v[0] == '"' {
		p.phase = v[1]
	}
	return p.phase
}

// set takes the values of fields from the window.
func (e *Event) set(b []byte, p *parsed) {
	*e = Event{Phase: p.phase}
	v := &p.values
	e.Cat, e.Name = e.text(v[keyCat].of(b)), e.text(v[keyName].of(b))
	e.PID, e.TID, e.TS, e.Dur = v[keyPID].of(b), v[keyTID].of(b), v[keyTS].of(b), v[keyDur].of(b)
	if a := v[keyArgs].of(b); len(a) > 0 && a[0] == '{' {
		e.Args = a
	}
}

func (e *Event) text(v []byte) []byte {
	switch {
	case string(v) == "null":
		return nil
	case len(v) == 0 || v[0] != '"':
		return v
	}
	v = v[1 : len(v)-1]
	if bytes.IndexByte(v, '\\') >= 0 {
		e.Escaped = true
	}
	return v
}
