// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chromejson

// Layout is how the last object of a kind was laid out: before each value the text from the end of the value before it,
// its key included. Writers lay objects of a kind out alike, so that this text is mostly met again, and its key need
// not be read. The zero value knows nothing yet.
type Layout struct {
	members [layoutMembers]layoutMember
}

type layoutMember struct {
	text [layoutText]byte
	size int // of text; 0: not known
	id   int // of the key
}

// Of objects with more members or longer texts, what is beyond is read as if it were new.
const layoutMembers, layoutText = 24, 48

// last is the number of a key that stands for the end of an object.
const last = -1

// member reads what comes before value n of an object: b[i] is the opening bracket for 0, else what follows the value
// before. It returns the number that number gives the key, and where the value begins; last and where the object ends.
func (l *Layout) member(b []byte, i, n int, number func(key []byte) int) (id, at int, err error) {
	if n >= layoutMembers {
		return member(b, i, n, number)
	}
	m := &l.members[n]
	if m.size > 0 && len(b)-i > m.size && string(b[i:i+m.size]) == string(m.text[:m.size]) {
		return m.id, space(b, i+m.size), nil
	}
	id, at, err = member(b, i, n, number)
	if err == nil && at-i <= layoutText {
		m.size, m.id = copy(m.text[:], b[i:at]), id
	}
	return id, at, err
}

func member(b []byte, i, n int, number func(key []byte) int) (id, at int, err error) {
	if i = space(b, i); i >= len(b) {
		return 0, i, errShort
	}
	switch c := b[i]; {
	case n > 0 && c == '}':
		return last, i + 1, nil
	case n > 0 && c != ',':
		return 0, i, &syntaxError{i, "a comma or bracket is missing in an event"}
	}
	if i = space(b, i+1); i >= len(b) {
		return 0, i, errShort
	}
	if n == 0 && b[i] == '}' {
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

// Fields calls f for every field of the raw JSON object, with the number that number gives its key, and the value as it
// stands. It stops at the first thing that is no JSON and at the first false.
func (l *Layout) Fields(object []byte, number func(key []byte) int, f func(id int, value []byte) bool) {
	eachMember(object, func(i, n int) (id, at int, err error) { return l.member(object, i, n, number) }, f)
}

func eachMember(object []byte, member func(i, n int) (id, at int, err error), f func(id int, value []byte) bool) {
	i := space(object, 0)
	if i >= len(object) || object[i] != '{' {
		return
	}
	for n := 0; ; n++ {
		id, at, err := member(i, n)
		if err != nil || id == last {
			return
		}
		if i, err = skip(object, at); err != nil || !f(id, object[at:i]) {
			return
		}
	}
}
