// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The files of semconv/registry are in the format of OpenTelemetry's Weaver (definition of groups,
// version 1). Keys unknown to Weaver are in annotations, which it passes through.

type manifest struct {
	Name         string `yaml:"name"`
	Description  string `yaml:"description"`
	SchemaURL    string `yaml:"schema_url"`
	Stability    string `yaml:"stability"`
	Dependencies []struct {
		Name         string `yaml:"name"`
		SchemaURL    string `yaml:"schema_url"`
		RegistryPath string `yaml:"registry_path"`
	} `yaml:"dependencies"`
}

type definitions struct {
	Groups  []definition `yaml:"groups"`
	Imports struct {
		Metrics []string `yaml:"metrics"`
	} `yaml:"imports"`
}

type definition struct {
	ID          string           `yaml:"id"`
	Type        string           `yaml:"type"` // attribute_group, span, metric or event
	DisplayName string           `yaml:"display_name"`
	Brief       string           `yaml:"brief"`
	Note        string           `yaml:"note"`
	Stability   string           `yaml:"stability"`
	Extends     string           `yaml:"extends"`
	MetricName  string           `yaml:"metric_name"`
	Instrument  string           `yaml:"instrument"`
	Unit        string           `yaml:"unit"`
	Name        string           `yaml:"name"` // of an event
	SpanKind    string           `yaml:"span_kind"`
	Attributes  []attributeEntry `yaml:"attributes"`
	Annotations struct {
		Section    int      `yaml:"section"`    // order in the documentation
		Page       string   `yaml:"page"`       // file of docs/semconv, without its extension
		Metric     string   `yaml:"metric"`     // OpenTelemetry's metric that is refined here
		Instrument string   `yaml:"instrument"` // of it
		Unit       string   `yaml:"unit"`       // of it
		Writers    []string `yaml:"writers"`
		Example    any      `yaml:"example"`
		Types      []string `yaml:"types"` // values of gpu.operation.type
	} `yaml:"annotations"`

	section string // the file's
}

type attributeEntry struct {
	ID               string      `yaml:"id"`
	Ref              string      `yaml:"ref"`
	Type             valueType   `yaml:"type"`
	Stability        string      `yaml:"stability"`
	Brief            string      `yaml:"brief"`
	Note             string      `yaml:"note"`
	Examples         []any       `yaml:"examples"`
	RequirementLevel requirement `yaml:"requirement_level"`
	Annotations      annotations `yaml:"annotations"`
}

// annotations are properties for which Weaver's attributes have no key.
type annotations struct {
	Type string `yaml:"type"` // of OpenTelemetry's attribute that is referred to
	// values of a list's elements, or the written values of OpenTelemetry's attribute
	Members  []member `yaml:"members"`
	Origin   string   `yaml:"origin"`     // otel: defined by conventions that are not in the registry this one depends on
	Unit     string   `yaml:"unit"`       // UCUM; absent for values without a unit (names, indexes)
	Open     bool     `yaml:"open"`       // values other than the members may occur
	Variable string   `yaml:"variable"`   // of a template, the word for its last segment
	On       []string `yaml:"appears_on"` // resource, scope, span, metric (data point), log
	Writers  []string `yaml:"writers"`    // gpuspan and the types of the Collector components
	Declared bool     `yaml:"declared"`   // an application states it itself
	Absent   string   `yaml:"absent"`     // meaning of its absence; unknown if not stated
	// Findings has the threshold and the remedy of each kind of finding, by the value of the
	// member.
	Findings map[string]findingKind `yaml:"findings"`
}

// findingKind holds the properties of a kind of finding besides its name and brief.
type findingKind struct {
	Threshold float64 `yaml:"threshold"`      // 0: none
	Of        string  `yaml:"of"`             // the whole that the threshold is a share of
	Live      float64 `yaml:"live_threshold"` // of live spans; 0: none
	LiveOf    string  `yaml:"live_of"`        // the whole that the live threshold is a share of
	Remedy    string  `yaml:"remedy"`

	// ReportedBy lists the producers; only profiles if it is not stated.
	ReportedBy []string       `yaml:"reported_by"`
	Limits     []findingLimit `yaml:"limits"`
}

// findingLimit is another number that decides whether a finding is reported.
type findingLimit struct {
	ID    string  `yaml:"id"`
	Value float64 `yaml:"value"`
	Brief string  `yaml:"brief"`
}

// valueType is a type's name, or the members of an enumeration of strings.
type valueType struct {
	name    string
	members []member
}

func (v *valueType) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		v.name = n.Value
		return nil
	}
	var e struct {
		Members []member `yaml:"members"`
	}
	if err := n.Decode(&e); err != nil {
		return err
	}
	for _, m := range e.Members {
		for key, value := range map[string]string{"id": m.ID, "value": m.Value, "stability": m.Stability} {
			if value == "" {
				return fmt.Errorf("line %d: member %q has no `%s`, which Weaver requires", n.Line, cmp.Or(m.ID, m.Value), key)
			}
		}
	}
	v.name, v.members = "string", e.Members
	return nil
}

// requirement is a requirement level, without the text of its condition.
type requirement string

func (r *requirement) UnmarshalYAML(n *yaml.Node) error {
	if len(n.Content) > 0 {
		n = n.Content[0]
	}
	*r = requirement(n.Value)
	return nil
}

// registry is the input of the generators: the definitions with references resolved, sorted by
// name.
type registry struct {
	SchemaURL   string
	OTelSemconv string // version of the conventions that names are taken from
	Stability   string
	Groups      []group
	Attributes  []attribute
	Metrics     []signal
	Events      []signal
	Spans       []signal
}

// group is a section of the documentation, one file of the registry.
type group struct {
	ID, Title, Brief string
	Page             string // file of docs/semconv, without its extension
	order            int
}

// attribute has its annotations, and the entry's own type, values and origin.
type attribute struct {
	annotations
	Name, Group, Brief string // the name ends in <Variable> where it is a template
	Example            any
}

type member struct {
	ID        string `yaml:"id"`
	Value     string `yaml:"value"`
	Brief     string `yaml:"brief"`
	Stability string `yaml:"stability"`
}

// signal is a metric, an event, or a type of spans by its ID.
type signal struct {
	Name, Instrument, Unit, Origin, Group, Brief string
	Types, Attributes, Required, Writers         []string
	Example                                      any
}

// load reads the registry's directory.
func load(dir string) (*registry, error) {
	var m manifest
	b, err := os.ReadFile(filepath.Join(dir, "manifest.yaml"))
	if err != nil {
		return nil, err
	}
	if err := strict(b, &m); err != nil {
		return nil, fmt.Errorf("manifest.yaml: %w", err)
	}
	if len(m.Dependencies) != 1 {
		return nil, errors.New("manifest.yaml: `dependencies` must have one entry, OpenTelemetry's registry")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []definition
	for _, p := range paths {
		name := strings.TrimSuffix(filepath.Base(p), ".yaml")
		if name == "manifest" {
			continue
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		defs, err := parse(b, name)
		if err != nil {
			return nil, fmt.Errorf("%s.yaml: %w", name, err)
		}
		all = append(all, defs...)
	}
	r, err := resolve(all)
	if err != nil {
		return nil, err
	}
	r.SchemaURL, r.Stability = m.SchemaURL, m.Stability
	r.OTelSemconv = "v" + path.Base(m.Dependencies[0].SchemaURL)
	return r, r.check()
}

// parse reads one file. Each metric that it imports must be refined in it, and the other way round.
func parse(b []byte, section string) ([]definition, error) {
	var d definitions
	if err := strict(b, &d); err != nil {
		return nil, err
	}
	var refined []string
	for i := range d.Groups {
		d.Groups[i].section = section
		if name := d.Groups[i].Annotations.Metric; name != "" {
			refined = append(refined, name)
		}
	}
	slices.Sort(refined)
	imported := slices.Sorted(slices.Values(d.Imports.Metrics))
	if !slices.Equal(refined, imported) {
		return nil, fmt.Errorf("imports are %q, refined are %q", imported, refined)
	}
	return d.Groups, nil
}

func strict(b []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	return d.Decode(into)
}

// resolve builds the registry from its definitions.
func resolve(all []definition) (*registry, error) {
	r := &registry{}
	byID := map[string]*definition{}
	for i := range all {
		byID[all[i].ID] = &all[i]
	}
	for i := range all {
		d := &all[i]
		attrs, required, err := refs(d, byID, 0)
		if err != nil {
			return nil, err
		}
		a := &d.Annotations
		s := signal{
			Name: cmp.Or(d.MetricName, a.Metric, d.Name, d.ID), Instrument: cmp.Or(d.Instrument, a.Instrument),
			Unit: cmp.Or(d.Unit, a.Unit), Group: d.section, Brief: d.Brief, Types: a.Types, Attributes: attrs,
			Required: required, Writers: a.Writers, Example: a.Example,
		}
		if a.Metric != "" {
			s.Origin = "otel"
		}
		switch {
		case d.Type == "span":
			r.Spans = append(r.Spans, s)
		case d.Type == "event":
			r.Events = append(r.Events, s)
		case d.Type == "metric", d.Type == "attribute_group" && a.Metric != "":
			r.Metrics = append(r.Metrics, s)
		case d.Type == "attribute_group" && a.Section > 0:
			r.Groups = append(r.Groups, group{d.section, d.DisplayName, d.Brief, a.Page, a.Section})
			for i := range d.Attributes {
				r.Attributes = append(r.Attributes, d.Attributes[i].attribute(d.section))
			}
		case d.Type == "attribute_group": // a list that others extend
		default:
			return nil, fmt.Errorf("group %s: unknown type %q (use attribute_group, span, metric or event)", d.ID, d.Type)
		}
	}
	slices.SortFunc(r.Groups, func(a, b group) int { return cmp.Compare(a.order, b.order) })
	slices.SortFunc(r.Attributes, func(a, b attribute) int { return strings.Compare(a.Name, b.Name) })
	for _, list := range [][]signal{r.Metrics, r.Events, r.Spans} {
		slices.SortFunc(list, func(a, b signal) int { return strings.Compare(a.Name, b.Name) })
	}
	return r, nil
}

// refs returns the attributes of the groups that a group extends, then the group's own.
func refs(d *definition, byID map[string]*definition, depth int) (names, required []string, err error) {
	if d.Extends != "" {
		base := byID[d.Extends]
		if base == nil || depth > 8 {
			return nil, nil, fmt.Errorf("group %s extends %q, which is no group", d.ID, d.Extends)
		}
		if names, required, err = refs(base, byID, depth+1); err != nil {
			return nil, nil, err
		}
	}
	for _, a := range d.Attributes {
		name := cmp.Or(a.Ref, a.ID)
		names = append(names, name)
		if a.RequirementLevel == "required" {
			required = append(required, name)
		}
	}
	return names, required, nil
}

// attribute returns the entry with its annotations.
func (e *attributeEntry) attribute(section string) attribute {
	a := attribute{annotations: e.Annotations, Name: cmp.Or(e.ID, e.Ref), Group: section, Brief: e.Brief}
	if e.Ref != "" {
		a.Origin = "otel"
	} else {
		a.Type = e.Type.name
	}
	if e.Type.members != nil {
		a.Members = e.Type.members
	}
	if t, ok := strings.CutPrefix(a.Type, "template["); ok {
		a.Type, a.Name = strings.TrimSuffix(t, "]"), a.Name+".<"+a.Variable+">"
	}
	if len(e.Examples) > 0 {
		a.Example = e.Examples[0]
	}
	return a
}

// initialisms are written in this form in Go names; every other part is capitalized.
var initialisms = map[string]string{
	"gpu": "GPU", "hw": "HW", "io": "IO", "id": "ID", "pci": "PCI", "bdf": "BDF", "sm": "SM",
	"dram": "DRAM", "flop": "FLOP", "flops": "FLOPS", "ecc": "ECC", "xid": "XID", "l2": "L2", "ai": "AI",
	"mfu": "MFU", "hfu": "HFU", "pcie": "PCIe", "nvlink": "NVLink", "cuda": "CUDA",
}

// goName returns the Go name of a dotted name; template segments are omitted.
func goName(name string) string {
	var b strings.Builder
	for _, p := range strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '_' }) {
		if !strings.HasPrefix(p, "<") {
			b.WriteString(cmp.Or(initialisms[p], strings.ToUpper(p[:1])+p[1:]))
		}
	}
	return b.String()
}
