// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Width is the number of columns that text reports keep to.
const Width = 100

// table sets rows in fixed columns: the first one left-aligned and cut to fit, the others right-aligned.
type table struct {
	b      *strings.Builder
	widths []int
	long   map[string]bool // first cells that are too long to be told apart when cut
}

func newTable(b *strings.Builder, widths ...int) *table {
	rest := Width
	for _, w := range widths {
		rest -= w
	}
	return &table{b: b, widths: append([]int{rest}, widths...)}
}

// name tells the table of the operations whose names are its first cells. Names that are cut to the same text get a
// line of their own.
func (t *table) name(lines []*Operation) {
	cut := map[string]string{}
	t.long = map[string]bool{}
	for _, o := range lines {
		name := o.indented()
		short := fit(name, t.widths[0])
		if before, ok := cut[short]; ok && before != name {
			t.long[before], t.long[name] = true, true
		}
		cut[short] = name
	}
}

func (t *table) row(cells ...string) {
	var line strings.Builder
	if t.long[cells[0]] {
		line.WriteString(clean(cells[0]) + "\n" + strings.Repeat(" ", t.widths[0]))
	} else {
		line.WriteString(fit(cells[0], t.widths[0]))
	}
	for i, c := range cells[1:] {
		w := t.widths[i+1]
		n := utf8.RuneCountInString(c)
		if n > w-1 {
			c, n = fit(c, w-1), w-1
		}
		line.WriteString(strings.Repeat(" ", w-n))
		line.WriteString(c)
	}
	t.b.WriteString(strings.TrimRight(line.String(), " "))
	t.b.WriteByte('\n')
}

// group is a title over neighbouring columns.
type group struct {
	title   string
	columns int
}

// groups sets titles over the columns after the first.
func (t *table) groups(groups ...group) {
	t.b.WriteString(strings.Repeat(" ", t.widths[0]))
	at := 1
	for _, g := range groups {
		width := -2 // a gap before each
		for _, w := range t.widths[at : at+g.columns] {
			width += w
		}
		at += g.columns
		rule := max(width-utf8.RuneCountInString(g.title)-2, 0)
		t.b.WriteString("  " + strings.Repeat("─", rule/2) + " " + g.title + " " + strings.Repeat("─", rule-rule/2))
	}
	t.b.WriteByte('\n')
}

// fit cuts or pads s to n columns.
func fit(s string, n int) string {
	s = clean(s)
	c := utf8.RuneCountInString(s)
	if c <= n {
		return s + strings.Repeat(" ", n-c)
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// clean replaces control characters: in names they would break the table and could steer the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
