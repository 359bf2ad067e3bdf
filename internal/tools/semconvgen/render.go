// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"slices"
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
	{
		"metrics", "Metrics",
		"Metrics of devices, of spans, and of otelgpu itself, with the attributes of their data points.",
	},
	{"logs", "Log records", "Usage records of requests, stragglers, and the ranks of a job."},
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

// anchor returns the fragment of a heading, as GitHub makes it.
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

// goType is how an attribute of a type is made of a value.
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

// check refuses what has no Go name.
func (r *registry) check() error {
	for _, a := range r.Attributes {
		if _, ok := goTypes[a.Type]; !ok {
			return fmt.Errorf("attribute %s: unknown type %q (use string, int, double, boolean, string[] or int[])", a.Name,
				a.Type)
		}
	}
	for _, a := range r.Attributes {
		for kind := range a.Findings {
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
			return fmt.Errorf("group %s: unknown page %q (use resource, spans, metrics or logs)", g.ID, g.Page)
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
	"cell": cell, "comment": comment, "describe": describe, "goName": goName, "has": slices.Contains[[]string],
	"type": func(t string) goType { return goTypes[t] },
	"join": func(s []string) string { return strings.Join(s, ", ") },
	"list": func(s []string) string { return fmt.Sprintf("%#v", s) },
	"mark": func(origin string) string {
		if origin == "otel" {
			return "¹"
		}
		return ""
	},
	"names": func(s []string) string {
		if len(s) == 0 {
			return ""
		}
		return "`" + strings.Join(s, "`, `") + "`"
	},
	"unit": func(u string) string {
		if u == "" {
			return ""
		}
		return "`" + u + "`"
	},
	"code": func(v any) string {
		if l, ok := v.([]any); ok {
			out := make([]string, len(l))
			for i, x := range l {
				out[i] = fmt.Sprint(x)
			}
			return "`[" + cell(strings.Join(out, ", ")) + "]`"
		}
		if v == nil {
			return ""
		}
		return "`" + cell(fmt.Sprint(v)) + "`"
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

// Meaning returns the brief with the values of an enumeration, and with what it means when the attribute is absent.
func (a attribute) Meaning() string {
	text := a.Brief
	var values []string
	for _, m := range a.Members {
		values = append(values, fmt.Sprintf("`%s` (%s)", m.Value, m.Brief))
	}
	if len(values) > 0 {
		text += " Values: " + strings.Join(values, ", ")
		if a.Open {
			text += " and others"
		}
		text += "."
	}
	if a.Absent != "" {
		text += " Absent: " + a.Absent + "."
	}
	return text
}
