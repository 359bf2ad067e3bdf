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

// parse reads the object at b[i], which is its opening bracket. What follows a phase that is not wanted is passed over.
func (e *Event) parse(b []byte, i int, wants func(phase byte) bool) (next int, err error) {
	*e = Event{}
	object := i
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(b) {
			return i, errShort
		}
		if b[i] != '"' {
			return i, &syntaxError{i, "a key is missing in an event"}
		}
		var k []byte
		if k, i, err = key(b, i); err != nil {
			return i, err
		}
		if i = space(b, i); i >= len(b) {
			return i, errShort
		}
		if b[i] != ':' {
			return i, &syntaxError{i, "a colon is missing in an event"}
		}
		if i = space(b, i+1); i >= len(b) {
			return i, errShort
		}
		start := i
		if i, err = skip(b, i); err != nil {
			return i, err
		}
		if e.set(k, b[start:i]); len(k) == 2 && k[0] == 'p' && k[1] == 'h' && !wants(e.Phase) {
			return skip(b, object)
		}
		if i = space(b, i); i >= len(b) {
			return i, errShort
		}
		switch b[i] {
		case ',':
			i = space(b, i+1)
		case '}':
			return i + 1, nil
		default:
			return i, &syntaxError{i, "a comma or bracket is missing in an event"}
		}
	}
}

func (e *Event) set(k, v []byte) {
	switch string(k) {
	case "ph":
		if len(v) >= 3 && v[0] == '"' {
			e.Phase = v[1]
		}
	case "cat":
		e.Cat = e.text(v)
	case "name":
		e.Name = e.text(v)
	case "pid":
		e.PID = v
	case "tid":
		e.TID = v
	case "ts":
		e.TS = v
	case "dur":
		e.Dur = v
	case "args":
		if v[0] == '{' {
			e.Args = v
		}
	}
}

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
