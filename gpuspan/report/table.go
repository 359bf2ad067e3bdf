// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Width is the number of columns of text reports.
const Width = 100

// table arranges rows in fixed columns: the first one left-aligned and truncated to fit, the others
// right-aligned.
type table struct {
	b      *strings.Builder
	widths []int
	long   map[string]bool // first cells that are equal when truncated
}

func newTable(b *strings.Builder, widths ...int) *table {
	rest := Width
	for _, w := range widths {
		rest -= w
	}
	return &table{b: b, widths: append([]int{rest}, widths...)}
}

// name sets the operations whose names are the first cells. Names that are equal when truncated get
// a separate line.
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

// fit truncates or pads s to n columns.
func fit(s string, n int) string {
	s = clean(s)
	c := utf8.RuneCountInString(s)
	if c <= n {
		return s + strings.Repeat(" ", n-c)
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// clean replaces control characters, which in names would break the table and could control the
// terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// absent is the cell of an unknown value.
const absent = "-"

// unit is the unit for numbers below a limit.
type unit struct {
	below, of float64
	name      string
}

// in formats a number in the first of units that its size is below, otherwise in the last.
func in(v float64, units ...unit) string {
	i := slices.IndexFunc(units, func(u unit) bool { return math.Abs(v) < u.below })
	if i < 0 {
		i = len(units) - 1
	}
	if u := units[i]; u.of != 1 {
		return digits(v/u.of) + u.name
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + units[i].name
}

// duration formats four significant digits in at most seven columns.
func duration(d time.Duration) string {
	return in(float64(d), unit{999.5, 1, "ns"}, unit{999.95e3, 1e3, "µs"}, unit{999.95e6, 1e6, "ms"},
		unit{9999.5e9, 1e9, "s"}, unit{0, 3600e9, "h"})
}

// digits formats about four significant digits and never an exponent below a million.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a < 9.9995:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case a < 99.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case a < 999.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a < 999999.5:
		return strconv.FormatFloat(v, 'f', 0, 64)
	default:
		return strconv.FormatFloat(v, 'e', 1, 64)
	}
}

// scaled formats a figure, divided by unit; 0 is absent.
func scaled(v, unit float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return absent
	}
	return digits(v / unit)
}

// quantity formats a number, empty for 0, with M for a million and G for a thousand of these.
func quantity(v float64) string {
	if v < 999999.5 {
		return scaled(v, 1)
	}
	return in(v, unit{999.95e6, 1e6, "M"}, unit{0, 1e9, "G"})
}

// plural returns the word for n of something.
func plural(n int64, thing string) string {
	if n == 1 {
		return thing
	}
	return thing + "s"
}

// plain formats a count in at most five columns: all digits below ten thousand.
func plain(n int64) string {
	name := ""
	for _, next := range []string{"k", "M", "G"} {
		if n < 10_000 {
			break
		}
		n, name = n/1000, next
	}
	return strconv.FormatInt(n, 10) + name
}

// shown formats a value; zero is omitted.
func shown[T time.Duration | int64](v T, write func(T) string) string {
	if v == 0 {
		return absent
	}
	return write(v)
}

// percent formats a share of 0 to 1 as a number of percent.
func percent(share float64) string {
	if share == 0 || math.IsNaN(share) {
		return absent
	}
	return strconv.FormatFloat(share*100, 'f', 1, 64)
}

// size formats bytes with a decimal prefix, as for rates.
func size(b int64) string {
	return in(float64(b), unit{1e3, 1, " B"}, unit{1e6, 1e3, " kB"}, unit{1e9, 1e6, " MB"}, unit{1e12, 1e9, " GB"},
		unit{0, 1e12, " TB"})
}

// indented returns the name, indented by its depth. Below the fourth level the depth is a number,
// since blanks would leave no room for the name.
func (o *Operation) indented() string {
	const deepest = 4
	name := strings.Repeat("  ", min(o.Depth, deepest))
	if o.Depth > deepest {
		name += fmt.Sprintf("%d: ", o.Depth)
	}
	name += o.Name
	if o.Level != "" {
		name += " [" + o.Level + "]"
	}
	return name
}
