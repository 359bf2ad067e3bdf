// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// word is one of a statement. A quoted one is a name, whatever it says.
type word struct {
	text   string
	quoted bool
}

func (w word) is(keywords ...string) bool {
	return !w.quoted && slices.ContainsFunc(keywords, func(k string) bool { return strings.EqualFold(w.text, k) })
}

// words splits a statement; comments and spaces are left out. Every other character that is of no name is a word by
// itself.
func words(s string) []word {
	var out []word
	for s != "" {
		switch c := s[0]; {
		case strings.IndexByte(" \t\n\f\r", c) >= 0:
			s = s[1:]
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
		case strings.IndexByte("\"`'[", c) >= 0:
			var w word
			w, s = quotation(s)
			out = append(out, w)
		default:
			n := 0
			for n < len(s) && (s[n] == '_' || s[n] == '$' || s[n] >= utf8.RuneSelf || '0' <= s[n] && s[n] <= '9' ||
				'a' <= s[n]|0x20 && s[n]|0x20 <= 'z') {
				n++
			}
			n = max(n, 1)
			out = append(out, word{text: s[:n]})
			s = s[n:]
		}
	}
	return out
}

// quotation is the quoted word that s begins with, and the rest. The quote itself is written twice within.
func quotation(s string) (w word, rest string) {
	end := s[0]
	if end == '[' {
		end = ']'
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] == end {
			if end == ']' || i+1 == len(s) || s[i+1] != end {
				return word{b.String(), true}, s[i+1:]
			}
			i++
		}
		b.WriteByte(s[i])
	}
	return word{b.String(), true}, ""
}

// define reads the columns from a CREATE TABLE statement (https://sqlite.org/lang_createtable.html).
func define(statement string) (*Table, error) {
	all := words(statement)
	open := slices.IndexFunc(all, func(w word) bool { return w.is("(") })
	if open < 0 {
		return nil, fmt.Errorf("%.100q names no columns", statement)
	}
	t := &Table{}
	depth, begin := 0, open+1
	for i := open; i < len(all); i++ {
		switch w := all[i]; {
		case w.is("("):
			depth++
		case w.is(")"):
			depth--
		case !w.is(",") || depth > 1:
			continue
		}
		if depth == 1 && all[i].is(",") || depth == 0 {
			t.define(all[begin:i])
			begin = i + 1
		}
		if depth == 0 {
			t.noRowid = slices.ContainsFunc(all[begin:], func(w word) bool { return w.is("WITHOUT") })
			return t, nil
		}
	}
	return nil, fmt.Errorf("%.100q is cut off", statement)
}

// define adds what stands between two commas: a column, or a constraint of the table.
func (t *Table) define(def []word) {
	if len(def) > 2 && def[0].is("CONSTRAINT") {
		def = def[2:]
	}
	switch {
	case len(def) == 0 || def[0].is("UNIQUE", "CHECK", "FOREIGN"):
		return
	case def[0].is("PRIMARY"): // PRIMARY KEY (a): the rowid, where a is an INTEGER
		for i := range t.columns {
			if c := &t.columns[i]; len(def) >= 5 && def[4].is(")", "ASC", "DESC") && strings.EqualFold(c.name, def[3].text) {
				c.rowid = c.integer
			}
		}
		return
	}
	c := column{name: def[0].text}
	rest := def[1:]
	constraint := slices.IndexFunc(rest, func(w word) bool {
		return w.is("CONSTRAINT", "PRIMARY", "NOT", "NULL", "UNIQUE", "CHECK", "DEFAULT", "COLLATE", "REFERENCES",
			"GENERATED", "AS")
	})
	if constraint < 0 {
		constraint = len(rest)
	}
	var kind []string
	for _, w := range rest[:constraint] {
		kind = append(kind, strings.ToUpper(w.text))
	}
	c.integer = slices.Equal(kind, []string{"INTEGER"})
	c.real = isReal(strings.Join(kind, " "))
	depth := 0
	for i, w := range rest[constraint:] {
		following := rest[constraint+i+1:]
		switch {
		case w.is("("):
			depth++
		case w.is(")"):
			depth--
		case depth > 0:
		case w.is("PRIMARY"): // of all keys, INTEGER PRIMARY KEY DESC alone is none
			c.rowid = c.integer && (len(following) < 2 || !following[1].is("DESC"))
		case w.is("AS"):
			c.hidden, c.absent = true, true
		case w.is("STORED"):
			c.absent = false
		}
	}
	t.columns = append(t.columns, c)
}

// isReal reports whether a column of the type holds floating point numbers: section 3.1 of https://sqlite.org/datatype3.html.
func isReal(kind string) bool {
	for _, other := range []string{"INT", "CHAR", "CLOB", "TEXT", "BLOB"} {
		if strings.Contains(kind, other) {
			return false
		}
	}
	return strings.Contains(kind, "REAL") || strings.Contains(kind, "FLOA") || strings.Contains(kind, "DOUB") //nolint:misspell // as the format says
}
