// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

// Layout is the layout of the objects of a kind so far. Writers use the same layout for all, so
// that the text between two variable values usually repeats: it is compared in one piece, and
// neither the keys in it nor the values that seldom change need to be parsed. The zero value is
// empty.
type Layout struct {
	// Seldom has the bits of numbers of keys whose values seldom change.
	Seldom uint64

	start   stride // before the object: its successors start with the opening bracket
	strides int    // that are kept
}

// stride is text between two values, and its successors. Strides are a tree; each matches its text
// exactly, so that a stride may follow another that it never followed before.
type stride struct {
	text   string
	fields []field
	ids    uint64    // bits of the fields' ones
	id     int       // of the key at the end
	next   []*stride // that followed the value
	likely *stride   // that followed last; nil: none did
}

// field is a value in a text.
type field struct{ id, from, to uint8 }

// Longer texts of objects, or further kinds of them, are parsed each time.
const layoutText, layoutChoice, layoutStrides = 200, 16, 512

// Numbers of keys with a special meaning.
const (
	last   = -1 - iota // the end of the object
	broken             // the text ends after its last value: what follows cannot be read
)

// is reports whether the stride is at b[i].
func (s *stride) is(b []byte, i int) bool {
	return s != nil && i+len(s.text) <= len(b) && string(b[i:i+len(s.text)]) == s.text
}

func (s *stride) has(id int) bool { return s.ids>>id&1 == 1 }

// after returns the stride at b[i], which is the opening bracket or follows a value. s is the
// stride before.
func (l *Layout) after(s *stride, b []byte, i int, number func(key []byte) int) (*stride, error) {
	for _, t := range s.next {
		if t.is(b, i) {
			s.likely = t
			return t, nil
		}
	}
	t := &stride{}
	for at, first := i, s == &l.start; ; first = false {
		id, value, err := member(b, at, first, number)
		end := value
		fixed := err == nil && id >= 0 && l.Seldom>>id&1 == 1
		if fixed {
			end, err = skip(b, value)
		}
		switch {
		case err != nil && len(t.fields) > 0:
			t.text, t.id = string(b[i:at]), broken
			return t, nil
		case err != nil:
			return nil, err
		case fixed && end-i <= layoutText:
			t.fields = append(t.fields, field{uint8(id), uint8(value - i), uint8(end - i)})
			t.ids |= 1 << id
			at = end
			continue
		}
		t.text, t.id = string(b[i:value]), id
		l.keep(s, t)
		return t, nil
	}
}

// keep makes t one of the successors of s, replacing another one if there are too many.
func (l *Layout) keep(s, t *stride) {
	switch n := len(s.next); {
	case len(t.text) > layoutText:
		return
	case n < layoutChoice && l.strides < layoutStrides:
		l.strides++
		s.next = append(s.next, t)
	case n > 0:
		t.next = s.next[n-1].next
		s.next[n-1] = t
	default:
		return
	}
	s.likely = t
}

// Fields calls f for every field of the raw JSON object, with number's result for its key, and the
// raw value. It stops at the first invalid JSON and at the first false.
func (l *Layout) Fields(object []byte, number func(key []byte) int, f func(id int, value []byte) bool) {
	i := space(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for s := &l.start; ; {
		var err error
		if t := s.likely; t.is(object, i) {
			s = t
		} else if s, err = l.after(s, object, i, number); err != nil {
			return
		}
		for _, v := range s.fields {
			if !f(int(v.id), object[i+int(v.from):i+int(v.to)]) {
				return
			}
		}
		switch i += len(s.text); s.id {
		case last:
			return
		case broken:
			continue
		}
		at := space(object, i)
		if i, err = skip(object, at); err != nil || !f(s.id, object[at:i]) {
			return
		}
	}
}

// member reads the text before a value of an object: b[i] is the opening bracket before the first,
// else what follows the value before. It returns the number that number gives the key, and where
// the value begins; last and where the object ends.
func member(b []byte, i int, first bool, number func(key []byte) int) (id, at int, err error) {
	if i = space(b, i); i >= len(b) {
		return 0, i, errShort
	}
	switch c := b[i]; {
	case !first && c == '}':
		return last, i + 1, nil
	case !first && c != ',':
		return 0, i, &syntaxError{i, "a comma or bracket is missing in an event"}
	}
	if i = space(b, i+1); i >= len(b) {
		return 0, i, errShort
	}
	if first && b[i] == '}' {
		return last, i + 1, nil
	}
	if b[i] != '"' {
		return 0, i, &syntaxError{i, "a key is missing in an event"}
	}
	k, i, err := key(b, i)
	if err != nil {
		return 0, i, err
	}
	if i = space(b, i); i >= len(b) {
		return 0, i, errShort
	}
	if b[i] != ':' {
		return 0, i, &syntaxError{i, "a colon is missing in an event"}
	}
	if i = space(b, i+1); i >= len(b) {
		return 0, i, errShort
	}
	return number(k), i, nil
}
