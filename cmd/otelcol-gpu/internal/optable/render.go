// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package optable

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
)

// maxName keeps a row within a terminal of 120 columns.
const maxName = 34

// Render writes at most rows operations (0: all), by GPU time, and then the steps of training loops. Unknown figures
// are drawn as "-".
func (t *Table) Render(w io.Writer, rows int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := "no GPU operations"
	if len(t.ops) > 0 {
		out = t.operations(rows)
	}
	if steps := t.stepRows(); steps != "" {
		out += "\n" + steps
	}
	_, err := fmt.Fprintln(w, out)
	return err
}

// Spans is the number of spans seen, and of GPU spans among them.
func (t *Table) Spans() (all, gpu int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spans, t.gpu
}

type row struct {
	key
	*stats
}

func sorted(m map[key]*stats) []row {
	rows := make([]row, 0, len(m))
	for k, s := range m {
		rows = append(rows, row{k, s})
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})
	return rows
}

func (t *Table) operations(limit int) string {
	w := newWriter(table.Row{"OPERATION", "TYPE", "COUNT", "GPU TIME", "SHARE", "GB/s", "TFLOP/s", "% PEAK", "BOUND", "J"},
		3, 4, 5, 6, 7, 8, 10)
	all := sorted(t.ops)
	shown := all
	if limit > 0 && len(all) > limit {
		shown = all[:limit]
	}
	names := newShortener(shown)
	for _, r := range shown {
		w.AppendRow(table.Row{
			names.cut(r.name), r.kind, r.count, duration(r.seconds),
			ratio(r.seconds, t.nest.outermost, "%.1f%%", 100),
			ratio(r.bytes, r.byteSeconds, "%.1f", 1e-9), ratio(r.flops, r.flopSeconds, "%.2f", 1e-12),
			ratio(r.roof, r.roofSeconds, "%.1f", 100), orDash(r.bound()), joules(r.stats),
		})
	}
	if hidden := all[len(shown):]; len(hidden) > 0 {
		rest := &stats{}
		for _, r := range hidden {
			rest.count += r.count
			rest.seconds += r.seconds
		}
		w.AppendRow(table.Row{
			fmt.Sprintf("(%d more operations)", len(hidden)), "", rest.count, duration(rest.seconds),
			ratio(rest.seconds, t.nest.outermost, "%.1f%%", 100), "-", "-", "-", "-", "-",
		})
	}
	return w.Render()
}

func (t *Table) stepRows() string {
	if len(t.steps) == 0 {
		return ""
	}
	w := newWriter(table.Row{"STEPS OF", "COUNT", "MEAN STEP", "ITEMS/s", "MFU %", "J"}, 2, 3, 4, 5, 6)
	steps := sorted(t.steps)
	names := newShortener(steps)
	for _, r := range steps {
		rate := "-"
		if r.items > 0 && r.seconds > 0 {
			rate = strings.TrimSpace(fmt.Sprintf("%.1f %s", float64(r.items)/r.seconds, r.itemType))
		}
		w.AppendRow(table.Row{
			names.cut(r.name), r.count, duration(r.seconds / float64(r.count)), rate,
			ratio(r.mfu, r.mfuWeight, "%.1f", 100), joules(r.stats),
		})
	}
	return w.Render()
}

func newWriter(header table.Row, right ...int) table.Writer {
	w := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	w.AppendHeader(header)
	var columns []table.ColumnConfig
	for _, n := range right {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	w.SetColumnConfigs(columns)
	return w
}

// shortener cuts names to a width. Names that would look alike are cut in the middle instead, and where that does not
// tell them apart either, not at all: rows of one kind then always differ.
type shortener struct{ by map[string]int }

func newShortener(rows []row) shortener {
	s := shortener{map[string]int{}}
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.name] {
			seen[r.name] = true
			s.by[head(printable.Line(r.name))]++
			s.by[middle(printable.Line(r.name))]++
		}
	}
	return s
}

func (s shortener) cut(name string) string {
	name = printable.Line(name)
	if utf8.RuneCountInString(name) <= maxName {
		return name
	}
	for _, short := range []string{head(name), middle(name)} {
		if s.by[short] == 1 {
			return short
		}
	}
	return name
}

func head(name string) string {
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName-1]) + "…"
	}
	return name
}

func middle(name string) string {
	const first = maxName / 2
	if r := []rune(name); len(r) > maxName {
		return string(r[:first]) + "…" + string(r[len(r)-(maxName-1-first):])
	}
	return name + "\x00" // no name of the other kind
}

func ratio(a, b float64, format string, scale float64) string {
	if b <= 0 {
		return "-"
	}
	return fmt.Sprintf(format, a/b*scale)
}

func joules(s *stats) string {
	if !s.hasJoules {
		return "-"
	}
	return fmt.Sprintf("%.2f", s.joules)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
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
