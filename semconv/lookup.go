// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconv

import (
	"slices"
	"strings"
	"sync"
)

// Type is the type of an attribute's value, as the registry writes it.
type Type string

// Types of values. The zero Type is invalid.
const (
	TypeString  Type = "string"   // a string
	TypeInt     Type = "int"      // an int64
	TypeDouble  Type = "double"   // a float64
	TypeBoolean Type = "boolean"  // a bool
	TypeStrings Type = "string[]" // a list of strings
	TypeInts    Type = "int[]"    // a list of int64
)

// Instrument is the kind of a metric, as the registry writes it.
type Instrument string

// Instruments. The zero Instrument is invalid. On the wire a counter is a monotonic sum, an up-down
// counter a sum that is not monotonic.
const (
	InstrumentGauge         Instrument = "gauge"
	InstrumentCounter       Instrument = "counter"
	InstrumentUpDownCounter Instrument = "updowncounter"
	InstrumentHistogram     Instrument = "histogram"
)

// Attribute is one entry of the registry.
type Attribute struct {
	Name    string   // name on the wire; a template ends in a segment in angle brackets
	Type    Type     // of the value
	Unit    string   // UCUM; empty for values without a unit
	Group   string   // section of the documentation
	Brief   string   // how it is obtained, and common misreadings
	Members []string // values of an enumeration, sorted; nil for other attributes
	Open    bool     // values other than Members may occur
	On      []string // signals that may have it: resource, scope, span, metric, log
	Writers []string // gpuspan and types of Collector components
	Origin  string   // "otel" for a name of OpenTelemetry's own conventions
	Absent  string   // meaning of its absence; empty: unknown
}

// Metric is one entry of the registry.
type Metric struct {
	Name       string     // as on the wire
	Instrument Instrument // never empty
	Unit       string     // UCUM
	Group      string     // section of the documentation
	Brief      string     // how it is obtained, and common misreadings
	Attributes []string   // names of the attributes that its points may have
	Required   []string   // the Attributes that every point has
	Writers    []string   // gpuspan and types of Collector components
	Origin     string     // "otel" for a name of OpenTelemetry's own conventions
}

// Description returns the description of the metric on the wire: the first sentence of the brief.
func (m Metric) Description() string {
	if first, _, more := strings.Cut(m.Brief, ". "); more {
		return first + "."
	}
	return m.Brief
}

// Event is one entry of the registry: the event name of a log record.
type Event struct {
	Name       string   // as on the wire
	Group      string   // section of the documentation
	Brief      string   // when it is written
	Attributes []string // names of the attributes that it may have
	Required   []string // the Attributes that every record has
	Writers    []string // types of Collector components
}

// Span is one entry of the registry: the attributes of GPU spans of some types.
type Span struct {
	ID         string   // of the definition
	Brief      string   // what such a span is
	Types      []string // values of gpu.operation.type
	Attributes []string // names of the attributes that it should have; others may be present
	Required   []string // the Attributes that it must have
}

// FindingKind describes one kind of finding, a value of gpu.finding.kind.
type FindingKind struct {
	Kind      string  // as on the wire
	Title     string  // one line for people
	Threshold float64 // share from which a finding is reported, 0 to 1; 0: no threshold
	Of        string  // quantity that the share refers to
	Remedy    string  // usual remedy; a rule may replace it

	// ReportedBy lists who reports it: "profile" (convert and the receivers of profiles), "process"
	// (gpuspan/report), "page" (the live page), "gpu_metrics" (the connector) and "ranks" (convert,
	// of the profiles of a job).
	ReportedBy []string
}

// LookupFindingKind returns the kind of finding with a name, and false if there is none.
func LookupFindingKind(name string) (FindingKind, bool) {
	k, ok := lookup().findings[name]
	return k, ok
}

type index struct {
	findings   map[string]FindingKind
	attributes map[string]Attribute
	templates  []Attribute
	metrics    map[string]Metric
	events     map[string]Event
}

// lookup is built at the first use, so that programs that only need the constants pay nothing.
var lookup = sync.OnceValue(func() index {
	x := index{attributes: map[string]Attribute{}, metrics: map[string]Metric{}, events: map[string]Event{}}
	x.findings = map[string]FindingKind{}
	for _, k := range FindingKinds() {
		x.findings[k.Kind] = k
	}
	for _, a := range Attributes() {
		x.attributes[a.Name] = a
		if strings.Contains(a.Name, "<") {
			x.templates = append(x.templates, a)
		}
	}
	for _, m := range Metrics() {
		x.metrics[m.Name] = m
	}
	for _, e := range Events() {
		x.events[e.Name] = e
	}
	return x
})

// LookupAttribute returns the attribute with a name, and false if there is none. For a name that a
// template matches, such as gpu.step.phase.duration.forward, it returns the template's entry.
func LookupAttribute(name string) (Attribute, bool) {
	x := lookup()
	a, ok := x.attributes[name]
	if !ok {
		for _, t := range x.templates {
			if matches(t.Name, name) {
				return t.clone(), true
			}
		}
	}
	return a.clone(), ok
}

// LookupMetric returns the metric with a name, and false if there is none.
func LookupMetric(name string) (Metric, bool) {
	m, ok := lookup().metrics[name]
	m.Attributes, m.Required, m.Writers = slices.Clone(m.Attributes), slices.Clone(m.Required), slices.Clone(m.Writers)
	return m, ok
}

// LookupEvent returns the event with a name, and false if there is none.
func LookupEvent(name string) (Event, bool) {
	e, ok := lookup().events[name]
	e.Attributes, e.Required, e.Writers = slices.Clone(e.Attributes), slices.Clone(e.Required), slices.Clone(e.Writers)
	return e, ok
}

func (a Attribute) clone() Attribute {
	a.Members, a.On, a.Writers = slices.Clone(a.Members), slices.Clone(a.On), slices.Clone(a.Writers)
	return a
}

// matches reports whether name is template with a lower_snake word as its last segment, which is in
// angle brackets.
func matches(template, name string) bool {
	prefix, _, _ := strings.Cut(template, "<")
	word, ok := strings.CutPrefix(name, prefix)
	const lower = "abcdefghijklmnopqrstuvwxyz"
	return ok && word != "" && strings.Contains(lower, word[:1]) && strings.Trim(word, lower+"_0123456789") == ""
}
