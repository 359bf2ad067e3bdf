// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/semconv"
)

// Format is the format of a table.
type Format struct {
	Rows   int  // operations at most; 0: all
	Width  int  // columns of the terminal; 0: no terminal, all columns of the table
	Height int  // lines of the terminal, steps and headers included; 0: any number
	Colour bool // of headers and bounds
}

// Terminal returns the current size of a terminal; the size is unlimited if it is unknown or f is
// not a terminal.
func Terminal(f *os.File) Format {
	if f == nil {
		return Format{}
	}
	format := Format{Colour: os.Getenv("NO_COLOR") == ""}
	if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
		format.Width, format.Height = width, height
	}
	return format
}

// Long returns the format of a table that may be longer than the terminal.
func (f Format) Long() Format {
	f.Height = 0
	return f
}

// Render writes operations as a tree, by GPU time, then the steps of training loops and the
// requests of services. Unknown values are drawn as "-". Shares are of the time of all outermost
// operations: the shares of a level sum to the share of the level above, with "(rest)" for
// operations without a row. Columns that do not fit are omitted, the least important first.
func (t *Table) Render(w io.Writer, f Format) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	steps, requests := t.stepRows(), t.requestRows()
	if f.Height > 0 {
		room := f.Height - 2 // header, and the line that the cursor is in
		for _, rows := range [][][]string{steps, requests} {
			if len(rows) > 0 {
				room -= len(rows) + 1
			}
		}
		if room = max(room, 3); f.Rows == 0 || f.Rows > room {
			f.Rows = room
		}
	}
	var b strings.Builder
	rows := t.tree(f.Rows, false)
	for n := f.Rows; f.Height > 0 && n >= f.Rows/2 && n > 0; n-- { // the rests have rows as well, and what has a note
		if rows = t.tree(n, true); len(rows) <= f.Rows {
			break
		}
	}
	for n := f.Rows; f.Height > 0 && len(rows) > f.Rows && n > 0; n-- {
		rows = t.tree(n, false)
	}
	if len(rows) > 0 {
		write(&b, operationColumns, rows, f)
	} else {
		b.WriteString("no GPU operations\n")
	}
	if len(steps) > 0 {
		write(&b, stepColumns, steps, f)
	}
	if len(requests) > 0 {
		write(&b, requestColumns, requests, f)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Spans returns the number of spans seen, and of GPU spans among them.
func (t *Table) Spans() (all, gpu int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spans, t.gpu
}

// column is a column of a table. If not all columns fit, the ones with the greatest rank are
// omitted. Optional ones are shown only if a row has a value.
type column struct {
	title    string
	rank     int
	right    bool
	optional bool
}

var (
	operationColumns = []column{
		{"OPERATION", 0, false, false},
		{"TYPE", 10, false, false},
		{"COUNT", 7, true, false},
		{"GPU TIME", 1, true, false},
		{"SHARE", 2, true, false},
		{"GB/s", 9, true, false},
		{"TFLOP/s", 8, true, false},
		{"% PEAK", 6, true, false},
		{"BOUND", 5, false, false},
		{"OCCUP %", 11, true, true},
		{"WAVES", 12, true, true},
		{"REGS", 13, true, true},
		{"J", 3, true, false},
		{"NOTE", 4, false, true},
	}
	stepColumns = []column{
		{"STEPS OF", 0, false, false},
		{"COUNT", 6, true, false},
		{"MEAN STEP", 1, true, false},
		{"ITEMS/s", 3, true, false},
		{"MFU %", 4, true, false},
		{"J", 5, true, false},
		{"NOTE", 2, false, true},
	}
	requestColumns = []column{
		{"REQUESTS OF", 0, false, false},
		{"COUNT", 3, true, false},
		{"MEDIAN", 2, true, false},
		{"SLOWEST", 1, true, false},
	}
)

type node struct {
	position
	*stats
	below []*node
}

// tree returns a row for each operation at the position with most of its time, followed by the
// operations in it; of the outermost operations beyond the limit, if noted, it returns the ones
// with a note.
func (t *Table) tree(limit int, noted bool) [][]string {
	var all []*node
	most := map[*key]*node{} // where an operation has most of its time; what lies below it is shown there
	for p, s := range t.ops {
		if s.Sums[spansums.Count] > 0 {
			all = append(all, &node{position: p, stats: s})
		}
	}
	slices.SortFunc(all, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.Sums[spansums.Time], a.Sums[spansums.Time]), cmp.Compare(a.op.name, b.op.name),
			cmp.Compare(a.op.kind, b.op.kind), cmp.Compare(a.op.category, b.op.category),
			cmp.Compare(a.parentName(), b.parentName()))
	})
	whole := 0.0
	for _, n := range all {
		if most[n.op] == nil {
			most[n.op] = n
		}
		if n.parent == nil {
			whole += n.Sums[spansums.Time]
		}
	}
	// From the largest on, so that a row's parent is there before it, but for parents that took
	// less time than what is in them.
	kept := map[*node]bool{}
	var keep func(n *node, depth int) bool
	keep = func(n *node, depth int) bool {
		if kept[n] || n.parent == nil {
			kept[n] = true
			return true
		}
		p := most[n.parent]
		if p == nil || p == n || depth == 0 || !keep(p, depth-1) { // an operation within itself has no position
			return false
		}
		kept[n] = true
		return true
	}
	const deepest = 32
	var top []*node
	hidden, rest := 0, &stats{}
	for _, n := range all {
		switch {
		case !kept[n] && limit > 0 && len(kept) >= limit && !(noted && n.parent == nil && n.note() != "") ||
			!keep(n, deepest):
			if hidden++; n.parent == nil {
				rest.add(n.stats, 1)
			}
		case n.parent == nil:
			top = append(top, n)
		default:
			p := most[n.parent]
			p.below = append(p.below, n)
		}
	}
	var rows [][]string
	var show func(n *node, indent string, depth int)
	show = func(n *node, indent string, depth int) {
		rows = append(rows, t.row(n, indent, whole))
		left := n.Sums[spansums.Time]
		for _, x := range n.below {
			left -= x.Sums[spansums.Time]
			if depth > 0 {
				show(x, indent+"  ", depth-1)
			}
		}
		if len(n.below) > 0 && left > 0.01*n.Sums[spansums.Time] {
			rows = append(rows, []string{
				indent + "  (rest)", "", "", duration(left), ratio(left, whole, "%.1f%%", 100), "", "",
				"", "", "", "", "", "", "",
			})
		}
	}
	for _, n := range top {
		show(n, "", deepest)
	}
	if hidden > 0 {
		rows = append(rows, []string{
			fmt.Sprintf("(%d more operations)", hidden), "", rest.runs(), duration(rest.Sums[spansums.Time]),
			ratio(rest.Sums[spansums.Time], whole, "%.1f%%", 100), "-", "-", "-", "-", "-", "-", "-", "-", "",
		})
	}
	return rows
}

func (n *node) parentName() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.name
}

func (t *Table) row(n *node, indent string, whole float64) []string {
	occupancy, waves, registers := t.launched(n.op)
	return []string{
		indent + printable.Line(n.op.name), n.op.kind, n.runs(), duration(n.Sums[spansums.Time]),
		ratio(n.Sums[spansums.Time], whole, "%.1f%%", 100), n.rate(spansums.Bytes, spansums.ByteTime, "%.1f", 1e-9),
		n.rate(spansums.FLOPs, spansums.FLOPTime, "%.2f", 1e-12), n.rate(spansums.Roofline, spansums.RoofTime, "%.1f", 100),
		cmp.Or(n.Bound(), "-"), occupancy, waves, registers, n.energy(), n.note(),
	}
}

func (t *Table) stepRows() (rows [][]string) {
	steps := slices.Collect(maps.Keys(t.steps))
	slices.SortFunc(steps, func(a, b position) int {
		return cmp.Or(cmp.Compare(t.steps[b].Sums[spansums.Time], t.steps[a].Sums[spansums.Time]),
			cmp.Compare(a.op.name, b.op.name),
			cmp.Compare(a.op.category, b.op.category))
	})
	for _, p := range steps {
		s, rate := t.steps[p], "-"
		if s.Sums[spansums.Items] > 0 && s.Sums[spansums.Time] > 0 {
			rate = strings.TrimSpace(s.rate(spansums.Items, spansums.Time, "%.1f", 1) + " " + printable.Line(s.itemType))
		}
		rows = append(rows, []string{
			printable.Line(p.op.name), s.runs(), duration(s.Sums[spansums.Time] / s.Sums[spansums.Count]), rate,
			s.rate(spansums.MFU, spansums.MFUTime, "%.1f", 100), s.energy(), t.lateRank(p.op.name),
		})
	}
	return rows
}

// colours of bounds: SGR 36 and so on.
var colours = map[string]string{
	semconv.GPURooflineBoundMemory: "36", semconv.GPURooflineBoundCompute: "32", semconv.GPURooflineBoundLaunch: "33",
	semconv.GPURooflineBoundLatency: "35",
}

const (
	leastName = 16 // columns of names, if the terminal has them
	mostName  = 60 // without a terminal
)

// write arranges columns.
func write(b *strings.Builder, columns []column, rows [][]string, f Format) {
	widths := make([]int, len(columns))
	for i, c := range columns {
		widths[i] = cells(c.title)
		for _, r := range rows {
			widths[i] = max(widths[i], cells(r[i]))
		}
	}
	filled := make([]bool, len(columns))
	for i, c := range columns {
		filled[i] = !c.optional || slices.ContainsFunc(rows, func(r []string) bool { return r[i] != "" && r[i] != "-" })
	}
	shown := make([]bool, len(columns))
	name := mostName
	if f.Width == 0 {
		copy(shown, filled)
	} else {
		left := f.Width - 1 // the last column would make some terminals wrap
		name = min(widths[0], leastName, f.Width/2)
		left -= name
		shown[0] = true
		for rank := range columns {
			i := slices.IndexFunc(columns, func(c column) bool { return c.rank == rank })
			if i <= 0 || widths[i]+2 > left || !filled[i] {
				continue
			}
			shown[i] = true
			left -= widths[i] + 2
		}
		name = max(name+left, 1)
	}
	names := shorten(rows, name, f.Width > 0)
	widths[0] = cells(columns[0].title)
	for _, n := range names {
		widths[0] = max(widths[0], cells(n))
	}
	line := func(cell func(i int) (text, colour string)) {
		var out strings.Builder
		for i, c := range columns {
			if !shown[i] {
				continue
			}
			text, colour := cell(i)
			pad := strings.Repeat(" ", max(0, widths[i]-cells(text)))
			if i > 0 {
				out.WriteString("  ")
			}
			if f.Colour && colour != "" {
				text = "\x1b[" + colour + "m" + text + "\x1b[0m"
			}
			if c.right {
				out.WriteString(pad + text)
			} else {
				out.WriteString(text + pad)
			}
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	line(func(i int) (string, string) { return columns[i].title, "1" })
	for k, r := range rows {
		line(func(i int) (string, string) {
			if i == 0 {
				return names[k], ""
			}
			return r[i], colours[r[i]]
		})
	}
}

func ratio(a, b float64, format string, scale float64) string {
	if b <= 0 {
		return "-"
	}
	return fmt.Sprintf(format, a/b*scale)
}

func duration(seconds float64) string {
	d := time.Duration(seconds * 1e9)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3f s", seconds)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3f ms", seconds*1e3)
	}
	return fmt.Sprintf("%.2f µs", seconds*1e6)
}
