// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"unicode"
)

//go:embed *.tmpl
var texts embed.FS

// render fills a template; Go code is formatted.
func render(name string, r *registry) ([]byte, error) {
	t, err := template.New("").Funcs(functions).ParseFS(texts, "*.tmpl")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if page, ok := strings.CutSuffix(name, ".page"); ok {
		i := slices.IndexFunc(pages, func(p docPage) bool { return p.Name == page })
		err = t.ExecuteTemplate(&b, "page", map[string]any{"Registry": r, "Page": pages[i]})
	} else {
		err = t.ExecuteTemplate(&b, name, r)
	}
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".go.tmpl") {
		return format.Source(b.Bytes())
	}
	return b.Bytes(), nil
}

// docPage is a page of docs/semconv.
type docPage struct{ Name, Title, Brief string }

var pages = []docPage{
	{"resource", "Resources and devices", "Attributes that identify the process, its job, and the device."},
	{"spans", "Spans", "Attributes of GPU spans and of their events."},
	{"jobs", "Requests, stragglers and ranks", "Spans and metrics of requests, and of the ranks of a job."},
	{
		"metrics", "Metrics",
		"Metrics of devices, of spans, and of otelgpu itself, with the attributes of their data points.",
	},
	{"logs", "Log records", "Events of devices, with the resource and attributes of the device."},
}

// GroupsOf returns the groups of a page, in their order.
func (r *registry) GroupsOf(page string) (list []group) {
	for _, g := range r.Groups {
		if g.Page == page {
			list = append(list, g)
		}
	}
	return list
}

// anchor returns the fragment of a heading in GitHub's form.
func anchor(title string) string {
	keep := func(c rune) rune {
		switch {
		case c == ' ' || c == '-':
			return '-'
		case unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}
	return strings.Map(keep, title)
}

// goType is how an attribute of a type is created from a value.
type goType struct{ Param, Method string }

var goTypes = map[string]goType{
	"string":   {"string", "String"},
	"int":      {"int64", "Int64"},
	"double":   {"float64", "Float64"},
	"boolean":  {"bool", "Bool"},
	"string[]": {"...string", "StringSlice"},
	"int[]":    {"...int64", "Int64Slice"},
}

var instruments = []string{"gauge", "counter", "updowncounter", "histogram"}

// check rejects definitions without a Go name.
func (r *registry) check() error {
	for _, a := range r.Attributes {
		if _, ok := goTypes[a.Type]; !ok {
			return fmt.Errorf("attribute %s: unknown type %q (use string, int, double, boolean, string[] or int[])", a.Name,
				a.Type)
		}
	}
	for _, a := range r.Attributes {
		for kind, f := range a.Findings {
			if err := f.check(kind); err != nil {
				return fmt.Errorf("attribute %s: %w", a.Name, err)
			}
			if !slices.Contains(a.Values(), kind) {
				return fmt.Errorf("attribute %s: finding %q is not a member (add the member, or remove the finding)", a.Name, kind)
			}
		}
		for _, m := range a.Members {
			if _, ok := a.Findings[m.Value]; len(a.Findings) > 0 && !ok {
				return fmt.Errorf("attribute %s: member %q has no entry in `findings` (add its threshold and remedy)", a.Name,
					m.Value)
			}
		}
	}
	for _, g := range r.Groups {
		if !slices.ContainsFunc(pages, func(p docPage) bool { return p.Name == g.Page }) {
			return fmt.Errorf("group %s: unknown page %q (use resource, spans, jobs, metrics or logs)", g.ID, g.Page)
		}
	}
	for _, m := range r.Metrics {
		if !slices.Contains(instruments, m.Instrument) {
			return fmt.Errorf("metric %s: unknown instrument %q (use gauge, counter, updowncounter or histogram)", m.Name,
				m.Instrument)
		}
	}
	return nil
}

var functions = template.FuncMap{
	"anchor": anchor, "pages": func() []docPage { return pages },
	"cell": cell, "comment": comment, "describe": describe, "goName": goName,
	"type": func(t string) goType { return goTypes[t] },
	"join": func(s []string) string { return strings.Join(s, ", ") },
	"list": func(s []string) string { return fmt.Sprintf("%#v", s) },
	"mark": func(origin string) string {
		if origin == "otel" {
			return "¹"
		}
		return ""
	},
	"from": func(writers, usual []string) string {
		if slices.Equal(writers, usual) {
			return ""
		}
		return " From " + strings.Join(writers, ", ") + "."
	},
	"unit": func(u string) string {
		if u == "" {
			return ""
		}
		return "`" + u + "`"
	},
	// The description that goes on the wire; the caveats stay in the documentation.
	"firstSentence": func(s string) string {
		if first, _, more := strings.Cut(s, ". "); more {
			return first + "."
		}
		return s
	},
}

// comment wraps a sentence at 110 columns.
func comment(indent, text string) string {
	var b strings.Builder
	line := indent + "//"
	for w := range strings.FieldsSeq(text) {
		if len(line)+1+len(w) > 110 {
			b.WriteString(line + "\n")
			line = indent + "//"
		}
		line += " " + w
	}
	return b.String() + line
}

func describe(typ, unit string) string {
	if unit == "" {
		return typ
	}
	return typ + ", " + unit
}

// cell returns a text within a table of Markdown.
func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ") }

// Go returns the attribute's name in Go.
func (a attribute) Go() string { return goName(a.Name) }

// Kind returns the attribute's type and unit.
func (a attribute) Kind() string { return describe(a.Type, a.Unit) }

// Prefix returns what the names of a template begin with.
func (a attribute) Prefix() string { return strings.TrimSuffix(a.Name, "<"+a.Variable+">") }

// FindingKinds returns the kinds of findings, sorted by name.
func (r *registry) FindingKinds() (list []findingRow) {
	for _, a := range r.Attributes {
		for _, m := range a.Members {
			if f, ok := a.Findings[m.Value]; ok {
				list = append(list, findingRow{f, m.Value, m.Brief})
			}
		}
	}
	return list
}

// producers are who may report a finding.
var producers = []string{"profile", "process", "page", "gpu_metrics", "ranks"}

// check rejects properties from which no constant or no sentence can be made.
func (f *findingKind) check(kind string) error {
	for _, p := range f.ReportedBy {
		if !slices.Contains(producers, p) {
			return fmt.Errorf("finding %q: unknown producer %q (use %s)", kind, p, strings.Join(producers, ", "))
		}
	}
	for _, l := range f.Limits {
		if l.ID == "" || l.Value == 0 || l.Brief == "" {
			return fmt.Errorf("finding %q: limit %q needs an id, a value and a brief", kind, l.ID)
		}
	}
	if (f.Threshold == 0) != (f.Of == "") || (f.Live == 0) != (f.LiveOf == "") {
		return fmt.Errorf("finding %q: a threshold needs the whole that it is a share of (set `of`, `live_of`)", kind)
	}
	return nil
}

// Producers returns who reports the finding.
func (f findingRow) Producers() []string {
	if len(f.ReportedBy) == 0 {
		return []string{producers[0]}
	}
	return f.ReportedBy
}

// Name returns the name of a limit in Go.
func (l findingLimit) Name() string { return goName(l.ID) }

// Number returns the value; only small ones have an exponent.
func (l findingLimit) Number() string {
	format := byte('g')
	if l.Value >= 1 {
		format = 'f'
	}
	return strconv.FormatFloat(l.Value, format, -1, 64)
}

// findingRow is a kind of finding with its name and brief.
type findingRow struct {
	findingKind
	Kind, Title string
}

// Go returns the name of the kind in Go.
func (f findingRow) Go() string { return "Finding" + goName(f.Kind) }

// Values returns the values of an enumeration.
func (a attribute) Values() (list []string) {
	for _, m := range a.Members {
		list = append(list, m.Value)
	}
	return list
}

// ValuesLike names one value of an enumeration by its Go name.
func (a attribute) ValuesLike() string {
	if len(a.Members) == 0 {
		return ""
	}
	return fmt.Sprintf(" The value is one of %s%s and the like.", a.Go(), goName(a.Members[0].Value))
}

// Meaning returns the brief with the values of an enumeration or an example, the scope or resource
// that may also have the attribute, and the meaning of its absence. page is the page with the text.
func (r *registry) Meaning(a attribute, page string) string {
	var text strings.Builder
	text.WriteString(a.Brief)
	example, isText := a.Example.(string)
	first := r.firstWithValues(a)
	switch {
	case len(a.Findings) > 0:
		text.WriteString(" Values: [kinds of findings](../finding-kinds.md).")
	case first != a.Name:
		text.WriteString(" Values as of `" + first + "`.")
	case len(a.Members) > 0:
		text.WriteString(" Values: " + a.valueList() + ".")
	case isText:
		text.WriteString(" Example: `" + example + "`.")
	}
	if page != "resource" {
		for _, owner := range []string{"scope", "resource"} {
			if slices.Contains(a.On, owner) && !strings.HasPrefix(a.Absent, "see the "+owner) {
				text.WriteString(" Also on the " + owner + ".")
			}
		}
	}
	if a.Absent != "" {
		text.WriteString(" Absent: " + a.Absent + ".")
	}
	return text.String()
}

// firstWithValues returns the first attribute, by name, that has the same values.
func (r *registry) firstWithValues(a attribute) string {
	for _, b := range r.Attributes {
		if slices.Equal(a.Values(), b.Values()) && len(a.Members) > 0 {
			return b.Name
		}
	}
	return a.Name
}

// valueList returns the values, each with its brief unless that is the value in words.
func (a attribute) valueList() string {
	var list []string
	for _, m := range a.Members {
		value := "`" + m.Value + "`"
		if strings.TrimSuffix(m.Brief, "s") != strings.ReplaceAll(m.Value, "_", " ") {
			value += " (" + m.Brief + ")"
		}
		list = append(list, value)
	}
	text := strings.Join(list, ", ")
	if a.Open {
		text += " and others"
	}
	return text
}

// Writers returns the most frequent writers of the attributes and metrics of a group.
func (r *registry) Writers(group string) (usual []string) {
	count := map[string]int{}
	for _, writers := range r.writersOf(group) {
		key := strings.Join(writers, ", ")
		if count[key]++; count[key] > count[strings.Join(usual, ", ")] {
			usual = writers
		}
	}
	return usual
}

// Mixed reports whether the attributes and metrics of a group have different writers.
func (r *registry) Mixed(group string) bool {
	usual := r.Writers(group)
	return slices.ContainsFunc(r.writersOf(group), func(w []string) bool { return !slices.Equal(w, usual) })
}

func (r *registry) writersOf(group string) (all [][]string) {
	for _, a := range r.Attributes {
		if a.Group == group {
			all = append(all, a.Writers)
		}
	}
	for _, m := range r.Metrics {
		if m.Group == group {
			all = append(all, m.Writers)
		}
	}
	return all
}

// MetricMeaning returns the brief, or a reference to the attribute with the same name and brief.
func (r *registry) MetricMeaning(m signal) string {
	for _, a := range r.Attributes {
		if a.Name == m.Name && a.Brief == m.Brief {
			return "As the attribute."
		}
	}
	return m.Brief
}

// AttributeList returns the names of a signal's attributes. Attributes of the device, its pod and
// the operation are named together; the page explains that connectors also set their own identity.
func (r *registry) AttributeList(s signal) string {
	left := slices.DeleteFunc(slices.Clone(s.Attributes), func(name string) bool {
		return name == "collector.instance.id"
	})
	var list []string
	for _, set := range []struct {
		name string
		of   func(attribute) bool
	}{
		{"device", func(a attribute) bool { return a.Group == "identity" }},
		{"pod", func(a attribute) bool { return strings.HasPrefix(a.Name, "k8s.") }},
		{"operation", func(a attribute) bool {
			return a.Name == "gpu.operation.name" || a.Name == "gpu.operation.type" || a.Name == "gpu.operation.category"
		}},
	} {
		all, n := true, 0
		for _, a := range r.Attributes {
			if set.of(a) {
				n++
				all = all && slices.Contains(left, a.Name)
			}
		}
		if !all || n == 0 {
			continue
		}
		list = append(list, set.name)
		left = slices.DeleteFunc(left, func(name string) bool {
			return slices.ContainsFunc(r.Attributes, func(a attribute) bool { return a.Name == name && set.of(a) })
		})
	}
	for _, name := range left {
		list = append(list, "`"+name+"`")
	}
	return strings.Join(list, ", ")
}
