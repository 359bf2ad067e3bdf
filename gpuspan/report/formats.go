// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// WriteCSV writes one row for each operation and run set ("all", "first", "rest"), with a header.
// Durations are seconds, sizes bytes, rates per second, shares 0 to 1; unknown values are empty.
// New columns are only added at the end. It returns the error of w.
func (s Summary) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	var record []string
	for _, a := range (&Operation{}).attrs("all", &Figures{}) {
		record = append(record, a.Key)
	}
	_ = c.Write(record) // errors are kept until Flush
	for i := range s.Operations {
		o := &s.Operations[i]
		for _, set := range []struct {
			name string
			f    *Figures
		}{{"all", &o.All}, {"first", &o.First}, {"rest", &o.Rest}} {
			if set.f.Count == 0 {
				continue
			}
			record = record[:0]
			for _, a := range o.attrs(set.name, set.f) {
				field := ""
				if isKnown(a) {
					field = a.Value.String()
				}
				record = append(record, field)
			}
			_ = c.Write(record)
		}
	}
	c.Flush()
	return c.Error()
}

// attrs returns the values of a set of runs in the order of CSV's columns, with the unit in their
// names. Unknown values are empty.
func (o *Operation) attrs(set string, f *Figures) []slog.Attr {
	if set != "all" { // columns of all runs only
		part := *o
		part.ShareOfParent, part.ShareOfTotal, part.PeakShare, part.PeakOf = 0, 0, 0, ""
		o = &part
	}
	d, r := durationAttrs("", f.Duration), f.Rates()
	return []slog.Attr{
		known("path", strings.Join(o.Path, " > ")), known("name", o.Name), known("category", o.Category),
		known("type", o.Type), slog.Int("device", o.Device), known("runs", set), slog.Int64("count", f.Count),
		slog.Int64("timed", f.Duration.Count), d[0], known("share_of_parent", o.ShareOfParent),
		known("share_of_total", o.ShareOfTotal), d[1], d[2], d[3], d[4], d[5], d[6],
		known("memory_read_bytes", f.Memory.Read), known("memory_write_bytes", f.Memory.Written),
		known("memory_bytes", f.Memory.Total()), known("pcie_to_device_bytes", f.PCIe.ToDevice),
		known("pcie_from_device_bytes", f.PCIe.FromDevice), known("pcie_bytes", f.PCIe.Total()),
		known("memory_read_bytes_per_second", r.MemoryRead), known("memory_write_bytes_per_second", r.MemoryWritten),
		known("memory_bytes_per_second", r.Memory), known("pcie_to_device_bytes_per_second", r.ToDevice),
		known("pcie_from_device_bytes_per_second", r.FromDevice), known("pcie_bytes_per_second", r.PCIe),
		known("flops", f.TotalFLOPs()), known("flop_precision", strings.Join(sortedKeys(f.FLOPs), " ")),
		known("flops_per_second", r.FLOPs), known("items", f.Items), known("item_type", o.ItemType),
		known("items_per_second", r.Items), known("peak_share", o.PeakShare), known("peak_of", o.PeakOf),
		known("level", o.Level), known("declaration_status", o.declarationStatus()),
	}
}

// declarationStatus returns gpu.declaration.status of the declared work; empty: below the peaks, or
// unknown.
func (o *Operation) declarationStatus() string {
	if o.PeakShare > 1 {
		return semconv.GPUDeclarationStatusExceedsPeak
	}
	return ""
}

// durationAttrs returns the statistics in seconds, the sum first.
func durationAttrs(prefix string, d Durations) []slog.Attr {
	figure := func(name string, v time.Duration) (a slog.Attr) {
		if a.Key = prefix + name; d.Count > 0 { // then 0 is a known value
			a.Value = slog.Float64Value(v.Seconds())
		}
		return a
	}
	return []slog.Attr{
		figure("total_seconds", d.Total), figure("min_seconds", d.Min), figure("mean_seconds", d.Mean),
		figure("max_seconds", d.Max), figure("stddev_seconds", d.StdDev),
		known(prefix+"p50_seconds", d.P50.Seconds()), known(prefix+"p99_seconds", d.P99.Seconds()),
	}
}

// known returns a value, empty if it is zero.
func known[T comparable](key string, v T) slog.Attr {
	var zero T
	if v == zero {
		return slog.Attr{Key: key}
	}
	return slog.Any(key, v)
}

func isKnown(a slog.Attr) bool { return !a.Value.Equal(slog.Value{}) }

// Log writes the summary to a logger: one record for each operation, loop and finding, at level
// info (findings: warn). Keys are the names of CSV's columns, with the prefixes first_ and rest_
// for the first run and the rest; unknown values are omitted.
func (s Summary) Log(ctx context.Context, l *slog.Logger) {
	log := func(level slog.Level, message string, attrs ...slog.Attr) {
		l.LogAttrs(ctx, level, message, slices.DeleteFunc(attrs, func(a slog.Attr) bool { return !isKnown(a) })...)
	}
	for i := range s.Operations {
		o := &s.Operations[i]
		attrs := o.attrs("all", &o.All)
		attrs[0].Key = "operation"
		if o.First.Duration.Count > 0 && o.Rest.Duration.Count > 0 {
			attrs = append(append(attrs, prefixed("first_", o.attrs("first", &o.First))...),
				prefixed("rest_", o.attrs("rest", &o.Rest))...)
		}
		log(slog.LevelInfo, "gpu operation", attrs...)
	}
	for i := range s.Loops {
		lp := &s.Loops[i]
		attrs := append([]slog.Attr{slog.String("loop", lp.Name), slog.Int64("steps", lp.Steps)},
			durationAttrs("step_", lp.Duration)...)
		for _, p := range lp.Phases {
			if p.Duration.Count > 0 {
				attrs = append(attrs, slog.Float64("phase_"+p.Name+"_seconds", p.Duration.Total.Seconds()))
			}
		}
		if lp.split() {
			attrs = append(attrs, slog.Float64("overlap_seconds", lp.Overlap.Seconds()),
				slog.Float64("other_seconds", lp.Other.Seconds()))
		}
		attrs = append(attrs, known("partial_steps", lp.Partial), known("mfu", lp.MFU))
		if t := lp.Duration.Total.Seconds(); t > 0 {
			attrs = append(attrs, known("items_per_second", float64(lp.Items)/t))
		}
		log(slog.LevelInfo, "gpu loop", attrs...)
	}
	for _, f := range s.Findings(Thresholds{}) {
		log(slog.LevelWarn, "gpu finding", slog.String("kind", string(f.Kind)), slog.String("subject", f.Subject),
			slog.Float64("value", f.Value), slog.Float64("threshold", f.Threshold), slog.String("evidence", f.Evidence))
	}
}

// prefixed returns the mean and the rates, under separate names.
func prefixed(prefix string, attrs []slog.Attr) (out []slog.Attr) {
	for _, a := range attrs {
		if a.Key == "mean_seconds" || strings.HasSuffix(a.Key, "_per_second") {
			out = append(out, slog.Attr{Key: prefix + a.Key, Value: a.Value})
		}
	}
	return out
}

// WriteJSON writes the summary and its findings as one indented JSON object. Durations are seconds,
// sizes bytes, rates per second, shares 0 to 1; unknown values are omitted. It returns the error of
// w.
func (s Summary) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// MarshalJSON implements json.Marshaler.
func (s Summary) MarshalJSON() ([]byte, error) {
	type plain Summary
	s.Operations = append([]Operation{}, s.Operations...) // not null
	var coverage *float64
	if c, ok := s.WallCoverage(); ok {
		coverage = &c
	}
	return json.Marshal(struct {
		plain
		Wall         float64     `json:"wall_seconds"`
		Covered      float64     `json:"covered_seconds"`
		WallCoverage *float64    `json:"wall_coverage,omitempty"`
		Findings     []Finding   `json:"findings,omitempty"`
		Items        []ItemTotal `json:"items,omitempty"`
	}{plain(s), s.Wall().Seconds(), s.Covered.Seconds(), coverage, s.Findings(Thresholds{}), s.Items()})
}

// MarshalJSON implements json.Marshaler: the fields of Device with the floor in seconds.
func (d Device) MarshalJSON() ([]byte, error) {
	type plain Device
	return json.Marshal(struct {
		plain
		Floor float64 `json:"floor_seconds,omitempty"`
	}{plain(d), d.Floor.Seconds()})
}

// MarshalJSON implements json.Marshaler.
func (d Durations) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count  int64   `json:"count"`
		Total  float64 `json:"total_seconds"`
		Min    float64 `json:"min_seconds"`
		Max    float64 `json:"max_seconds"`
		Mean   float64 `json:"mean_seconds"`
		StdDev float64 `json:"stddev_seconds"`
		P50    float64 `json:"p50_seconds,omitempty"`
		P99    float64 `json:"p99_seconds,omitempty"`
	}{
		d.Count, d.Total.Seconds(), d.Min.Seconds(), d.Max.Seconds(), d.Mean.Seconds(), d.StdDev.Seconds(),
		d.P50.Seconds(), d.P99.Seconds(),
	})
}

// MarshalJSON implements json.Marshaler: the values and the rates derived from them.
func (f Figures) MarshalJSON() ([]byte, error) {
	type plain Figures
	return json.Marshal(struct {
		plain
		Rates Rates `json:"rates,omitzero"`
	}{plain(f), f.Rates()})
}

// MarshalJSON implements json.Marshaler.
func (o Operation) MarshalJSON() ([]byte, error) {
	type plain Operation
	var l2 *float64
	if o.HasL2HitRatio {
		l2 = &o.L2HitRatio
	}
	return json.Marshal(struct {
		plain
		L2HitRatio *float64 `json:"l2_hit_ratio,omitempty"`
		Status     string   `json:"declaration_status,omitempty"`
	}{plain(o), l2, o.declarationStatus()})
}

// split reports whether Overlap and Other are known: of at least one step, unless there is none.
func (l *Loop) split() bool { return l.Partial == 0 || l.Partial < l.Steps }

// MarshalJSON implements json.Marshaler.
func (l Loop) MarshalJSON() ([]byte, error) {
	type plain Loop
	l.Phases = append([]Phase{}, l.Phases...) // not null
	var overlap, other *float64
	if l.split() {
		o, rest := l.Overlap.Seconds(), l.Other.Seconds()
		overlap, other = &o, &rest
	}
	return json.Marshal(struct {
		plain
		Overlap *float64 `json:"overlap_seconds,omitempty"`
		Other   *float64 `json:"other_seconds,omitempty"`
		Covered float64  `json:"covered_seconds,omitempty"`
		Exposed float64  `json:"exposed_communication_seconds,omitempty"`
		Waiting float64  `json:"waiting_for_data_seconds,omitempty"`
	}{
		plain(l), overlap, other, l.Covered.Seconds(), l.Exposed.Seconds(), l.Waiting.Seconds(),
	})
}

// WriteDOT writes the execution graph for Graphviz: sections (boxes) by nesting, the kernels that
// they launched (ellipses) and the modules of the kernels (folders). Edges have counts. "dot -Tsvg"
// draws it. It returns the error of w.
func (s Summary) WriteDOT(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "digraph gpu {\n\trankdir=LR;\n\tnode [fontname=\"sans-serif\"];")
	kernels, modules := map[Kernel]int{}, map[string]int{}
	for i := range s.Operations {
		o := &s.Operations[i]
		label := fmt.Sprintf("%s\n%d × %s", o.Name, o.All.Count, shown(o.All.Duration.Mean, duration))
		fmt.Fprintf(b, "\ts%d [shape=box, label=%s];\n", i, dotQuote(label))
		if o.Parent >= 0 {
			fmt.Fprintf(b, "\ts%d -> s%d [label=\"%d\"];\n", o.Parent, i, o.All.Count)
		}
		for _, k := range o.Kernels {
			key := Kernel{Name: k.Name, Module: k.Module}
			id, ok := kernels[key]
			if !ok {
				id = len(kernels)
				kernels[key] = id
				fmt.Fprintf(b, "\tk%d [shape=ellipse, label=%s];\n", id, dotQuote(k.Name))
				if k.Module != "" {
					m, ok := modules[k.Module]
					if !ok {
						m = len(modules)
						modules[k.Module] = m
						fmt.Fprintf(b, "\tm%d [shape=folder, label=%s];\n", m, dotQuote(k.Module))
					}
					fmt.Fprintf(b, "\tk%d -> m%d [style=dashed];\n", id, m)
				}
			}
			fmt.Fprintf(b, "\ts%d -> k%d [label=\"%d\"];\n", i, id, k.Count)
		}
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

// dotQuote writes a quoted identifier of the DOT language, in which only the quote and the
// backslash are special.
func dotQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", "").Replace(s) + `"`
}
