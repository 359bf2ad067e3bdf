// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// WriteText writes the summary for a terminal of 100 columns: time, work and first run of each
// operation, indented by nesting, then categories, loops and findings. Empty tables are omitted;
// "-" is an unknown value. It returns the error of w.
func (s Summary) WriteText(w io.Writer) error {
	var b strings.Builder
	s.writeHead(&b)
	s.writeTime(&b)
	s.writeWork(&b)
	s.writeFirst(&b)
	s.writeCategories(&b)
	s.writeDescriptions(&b)
	for i := range s.Loops {
		s.Loops[i].write(&b)
	}
	if f := s.Findings(Thresholds{}); len(f) > 0 {
		b.WriteString("\nFindings\n")
		for _, x := range f {
			wrap(&b, "  * ", x.String())
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Summary) writeHead(b *strings.Builder) {
	b.WriteString("GPU sections")
	if s.Service != "" {
		b.WriteString(" of " + clean(s.Service))
	}
	fmt.Fprintf(b, ": %s of wall time", duration(s.Wall()))
	if c, ok := s.WallCoverage(); ok {
		fmt.Fprintf(b, ", %s %% of it in sections", digits(c*100))
	}
	b.WriteByte('\n')
	for _, d := range s.Devices {
		parts := []string{fmt.Sprintf("device %d", d.Ordinal)}
		for _, v := range []string{d.Model, d.ID} {
			if v != "" {
				parts = append(parts, v)
			}
		}
		if d.Floor > 0 {
			parts = append(parts, "empty section "+duration(d.Floor))
		}
		if d.Peaks.Source != "" {
			parts = append(parts, "peaks from "+d.Peaks.Source)
		}
		wrap(b, "", strings.Join(parts, ", "))
	}
	switch {
	case s.OnHost == 0:
	case s.OnHost == s.Timed:
		b.WriteString("no device measured these sections: all times are the host's\n")
	default:
		fmt.Fprintf(b, "%d of %d timed sections have the host's times: no device measured them\n", s.OnHost, s.Timed)
	}
	for _, reason := range sortedKeys(s.Dropped) {
		fmt.Fprintf(b, "not timed: %d sections (%s)\n", s.Dropped[reason], reason)
	}
	if s.Pending > 0 {
		fmt.Fprintf(b, "not read back yet: %d sections\n", s.Pending)
	}
	for _, n := range s.Items() {
		fmt.Fprintf(b, "%s %s", strconv.FormatInt(n.Count, 10), plural(n.Count, clean(n.Type)))
		if n.Rate > 0 {
			fmt.Fprintf(b, ", %s %ss/s of wall time", quantity(n.Rate), clean(n.Type))
		}
		b.WriteByte('\n')
	}
	if s.Overflow > 0 {
		fmt.Fprintf(b, "too many operations: %d runs are counted under %s\n", s.Overflow, overflowName)
	}
	if len(s.Operations) == 0 && len(s.Loops) == 0 {
		b.WriteString("no section has finished\n")
	}
}

// columns are a table of operations: titles over the columns after the first, and their heads.
type columns struct {
	widths []int
	groups []group
	heads  []string
}

// table writes the operations for which has is true and those around them. cells returns the cells
// of an operation after its name, absent ones if it has no values.
func (s Summary) table(b *strings.Builder, c columns, has func(*Operation) bool, cells func(*Operation) []string) {
	lines := s.lines(has)
	if len(lines) == 0 {
		return
	}
	b.WriteByte('\n')
	t := newTable(b, c.widths...)
	t.name(lines)
	if c.groups != nil {
		t.groups(c.groups...)
	}
	t.row(c.heads...)
	for _, o := range lines {
		row := []string{o.indented()}
		if has(o) {
			row = append(row, cells(o)...)
		}
		for has(o) && len(row) < len(c.heads) { // a row that is only there for the indentation needs no values
			row = append(row, absent)
		}
		t.row(row...)
	}
}

func (s Summary) writeTime(b *strings.Builder) {
	untimed := false
	s.table(b, columns{
		widths: []int{10, 8, 8, 6, 8, 8, 8, 8, 8, 8},
		heads:  []string{"Time", "count", "total", "%parent", "%all", "mean", "stddev", "min", "p50", "p99", "max"},
	}, func(*Operation) bool { return true }, func(o *Operation) []string {
		d := o.All.Duration
		count := plain(o.All.Count)
		if d.Count != o.All.Count {
			count = plain(d.Count) + "/" + count
			untimed = true
		}
		if d.Count == 0 {
			return []string{count}
		}
		return []string{
			count, duration(d.Total), percent(o.ShareOfParent), percent(o.ShareOfTotal), duration(d.Mean), duration(d.StdDev),
			duration(d.Min), shown(d.P50, duration), shown(d.P99, duration), duration(d.Max),
		}
	})
	if untimed {
		b.WriteString("n/m: n of m runs were timed; times and rates are of those\n")
	}
}

// lines returns the operations for which has is true and their ancestors, without which the
// indentation would put them below others.
func (s Summary) lines(has func(*Operation) bool) []*Operation {
	shown := make([]bool, len(s.Operations))
	for i := range s.Operations {
		if !has(&s.Operations[i]) {
			continue
		}
		for p := i; p >= 0 && !shown[p]; p = s.Operations[p].Parent {
			shown[p] = true
		}
	}
	var out []*Operation
	for i := range s.Operations {
		if shown[i] {
			out = append(out, &s.Operations[i])
		}
	}
	return out
}

func (s Summary) writeWork(b *strings.Builder) {
	impossible := false
	s.table(b, columns{
		widths: []int{8, 8, 8, 7, 7, 7, 9, 9, 14},
		groups: []group{{"memory, GB/s", 3}, {"PCIe, GB/s", 3}},
		heads:  []string{"Work", "read", "write", "all", "to dev", "from", "all", "TFLOP/s", "items/s", "% of peak"},
	}, func(o *Operation) bool { return o.All.Rates() != Rates{} }, func(o *Operation) []string {
		r := o.All.Rates()
		peak := percent(o.PeakShare)
		if o.PeakShare >= 10 { // the digits of an impossible value mean nothing
			peak = ">1000"
		}
		if o.PeakOf != "" {
			peak += " " + o.PeakOf
		}
		if o.declarationStatus() != "" {
			peak, impossible = peak+"!", true
		}
		return []string{
			scaled(r.MemoryRead, 1e9), scaled(r.MemoryWritten, 1e9), scaled(r.Memory, 1e9), scaled(r.ToDevice, 1e9),
			scaled(r.FromDevice, 1e9), scaled(r.PCIe, 1e9), scaled(r.FLOPs, 1e12), quantity(r.Items), peak,
		}
	})
	if impossible {
		wrap(b, "", "!: more than the device can do in the time (exceeds_peak): the work is declared wrong, a cache "+
			"served it, or it did not run on the stream of its section")
	}
	s.table(b, columns{
		widths: []int{14, 10, 10},
		heads:  []string{"Memory access, as declared", "pattern", "% L2 hits", "zero copy"},
	},
		func(o *Operation) bool {
			return o.All.Rates() != Rates{} && (o.AccessPattern != "" || o.HasL2HitRatio || o.ZeroCopy != ZeroCopyUnset)
		},
		func(o *Operation) []string {
			hits := absent
			if o.HasL2HitRatio {
				hits = strconv.FormatFloat(100*o.L2HitRatio, 'f', 1, 64)
			}
			return []string{cmp.Or(o.AccessPattern, absent), hits, cmp.Or(o.ZeroCopy.String(), absent)}
		})
}

func (s Summary) writeFirst(b *strings.Builder) {
	s.table(b, columns{
		widths: []int{8, 8, 8, 7, 7, 7, 8, 8, 8, 8},
		groups: []group{{"time of a run", 4}, {"GB/s", 2}, {"TFLOP/s", 2}, {"items/s", 2}},
		heads: []string{
			"First run and the rest", "first", "rest", "stddev", "ratio", "first", "rest", "first", "rest", "first", "rest",
		},
	}, func(o *Operation) bool {
		return o.First.Duration.Count > 0 && o.Rest.Duration.Count > 0
	}, func(o *Operation) []string {
		f, r := o.First.Rates(), o.Rest.Rates()
		ratio, _ := o.firstRatio()
		return []string{
			duration(o.First.Duration.Mean), duration(o.Rest.Duration.Mean), duration(o.Rest.Duration.StdDev),
			scaled(ratio, 1),
			scaled(f.Memory+f.PCIe, 1e9), scaled(r.Memory+r.PCIe, 1e9), scaled(f.FLOPs, 1e12), scaled(r.FLOPs, 1e12),
			quantity(f.Items), quantity(r.Items),
		}
	})
}

// writeDescriptions writes what operations are, as their authors described them, once for each
// name.
func (s Summary) writeDescriptions(b *strings.Builder) {
	said := map[[2]string]bool{}
	for i := range s.Operations {
		o := &s.Operations[i]
		key := [2]string{o.Name, o.Description}
		if o.Description == "" || said[key] {
			continue
		}
		if len(said) == 0 {
			b.WriteString("\nDescriptions\n")
		}
		said[key] = true
		wrap(b, "  ", o.Name+": "+o.Description)
	}
}

func (s Summary) writeCategories(b *strings.Builder) {
	cs := s.Categories()
	if len(cs) == 0 {
		return
	}
	b.WriteByte('\n')
	t := newTable(b, 9, 10, 8, 12, 12, 10, 10)
	t.row("Category", "count", "total", "%total", "memory", "PCIe", "GB/s", "TFLOP/s")
	if rest := s.uncategorized(); rest.Figures.Count > 0 {
		cs = append(cs, rest)
	}
	for _, c := range cs {
		r := c.Figures.Rates()
		t.row(c.Name, plain(c.Figures.Count), shown(c.Figures.Duration.Total, duration),
			percent(c.ShareOfTotal), shown(c.Figures.Memory.Total(), size),
			shown(c.Figures.PCIe.Total(), size), scaled(r.Memory+r.PCIe, 1e9), scaled(r.FLOPs, 1e12))
	}
}

func (l *Loop) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nLoop %s: %d steps recorded", clean(l.Name), l.Steps)
	if t := l.Duration.Total.Seconds(); t > 0 && l.Items > 0 {
		fmt.Fprintf(b, ", %s %ss/s", quantity(float64(l.Items)/t), clean(cmp.Or(l.ItemType, "item")))
	}
	if l.MFU > 0 {
		fmt.Fprintf(b, ", MFU %s %%", percent(l.MFU))
	}
	b.WriteByte('\n')
	t := newTable(b, 9, 10, 9, 9, 9, 9, 9, 9)
	t.row("", "steps", "total", "%step", "mean", "stddev", "min", "p50", "p99")
	row := func(name string, d Durations, share string) {
		t.row("  "+name, plain(d.Count), duration(d.Total), share, duration(d.Mean), duration(d.StdDev),
			duration(d.Min), shown(d.P50, duration), shown(d.P99, duration))
	}
	share := func(d, of time.Duration) string { // a phase of no time takes 0 %, which is known
		if of <= 0 {
			return absent
		}
		return strconv.FormatFloat(100*float64(d)/float64(of), 'f', 1, 64)
	}
	for _, p := range l.Phases {
		if p.Duration.Count == 0 {
			t.row("  "+p.Name, plain(0))
			continue
		}
		row(p.Name, p.Duration, share(p.Duration.Total, l.Duration.Total-p.unknown))
	}
	if l.split() {
		t.row("  − overlap", "", duration(l.Overlap), share(l.Overlap, l.Duration.Total-l.partial))
		t.row("  + other", "", duration(l.Other), share(l.Other, l.Duration.Total-l.partial))
	}
	row("= step", l.Duration, share(l.Duration.Total, l.Duration.Total))
	if l.Partial > 0 {
		wrap(b, "", fmt.Sprintf("%d of %d steps have a phase of unknown time, because a section was not timed: each "+
			"row is of the steps in which it is known", l.Partial, l.Steps))
	}
}

// wrap breaks a paragraph at Width columns and indents the lines after the first by the width of
// lead.
func wrap(b *strings.Builder, lead, text string) {
	col := 0
	indent := strings.Repeat(" ", len([]rune(lead)))
	const held = "\x00" // keeps a number and its % together; clean leaves no such character
	for i, word := range strings.Fields(strings.ReplaceAll(clean(text), " %", held+"%")) {
		word = strings.ReplaceAll(word, held, " ")
		n := len([]rune(word))
		switch {
		case i == 0:
			b.WriteString(lead)
			col = len(indent)
		case col+1+n > Width:
			b.WriteString("\n" + indent)
			col = len(indent)
		default:
			b.WriteByte(' ')
			col++
		}
		b.WriteString(word)
		col += n
	}
	b.WriteByte('\n')
}
