// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// registry is semconv/registry.yaml; the comment at its top describes the keys.
type registry struct {
	SchemaURL     string              `yaml:"schema_url"`
	OTelSemconv   string              `yaml:"otel_semconv"`
	Stability     string              `yaml:"stability"`
	Groups        []group             `yaml:"groups"`
	AttributeSets map[string][]string `yaml:"attribute_sets"`
	Attributes    []attribute         `yaml:"attributes"`
	Metrics       []metric            `yaml:"metrics"`
	Events        []event             `yaml:"events"`
}

type group struct {
	ID    string `yaml:"id"`
	Title string `yaml:"title"`
	Brief string `yaml:"brief"`
}

type attribute struct {
	Name    string   `yaml:"name"`
	Type    string   `yaml:"type"`
	Unit    string   `yaml:"unit"`
	Origin  string   `yaml:"origin"`
	Group   string   `yaml:"group"`
	On      []string `yaml:"on"`
	Writers []string `yaml:"writers"`
	Open    bool     `yaml:"open"`
	Members []member `yaml:"members"`
	Example any      `yaml:"example"`
	Brief   string   `yaml:"brief"`
}

type member struct {
	Value string `yaml:"value"`
	Brief string `yaml:"brief"`
}

type metric struct {
	Name       string   `yaml:"name"`
	Instrument string   `yaml:"instrument"`
	Unit       string   `yaml:"unit"`
	Origin     string   `yaml:"origin"`
	Group      string   `yaml:"group"`
	Attributes []string `yaml:"attributes"`
	Writers    []string `yaml:"writers"`
	Example    any      `yaml:"example"`
	Brief      string   `yaml:"brief"`
}

type event struct {
	Name       string   `yaml:"name"`
	Group      string   `yaml:"group"`
	Attributes []string `yaml:"attributes"`
	Writers    []string `yaml:"writers"`
	Brief      string   `yaml:"brief"`
}

// parse reads the registry and replaces the names of attribute sets by their members.
func parse(b []byte) (*registry, error) {
	r := &registry{}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	for i := range r.Metrics {
		r.Metrics[i].Attributes = r.expand(r.Metrics[i].Attributes)
	}
	for i := range r.Events {
		r.Events[i].Attributes = r.expand(r.Events[i].Attributes)
	}
	return r, nil
}

func (r *registry) expand(names []string) []string {
	var out []string
	for _, n := range names {
		if set, ok := r.AttributeSets[n]; ok {
			out = append(out, set...)
			continue
		}
		out = append(out, n)
	}
	return out
}

// initialisms are written as here in Go names; every other part is capitalised.
var initialisms = map[string]string{
	"gpu": "GPU", "hw": "HW", "io": "IO", "id": "ID", "pci": "PCI", "bdf": "BDF", "sm": "SM",
	"dram": "DRAM", "flop": "FLOP", "flops": "FLOPS", "ecc": "ECC", "xid": "XID", "l2": "L2", "ai": "AI",
	"mfu": "MFU", "hfu": "HFU", "pcie": "PCIe", "nvlink": "NVLink", "cuda": "CUDA",
}

// goName makes the Go name of a dotted name; template segments are left out.
func goName(name string) string {
	var b strings.Builder
	for _, p := range strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '_' }) {
		if strings.HasPrefix(p, "<") {
			continue
		}
		if s, ok := initialisms[p]; ok {
			b.WriteString(s)
			continue
		}
		r := []rune(p)
		r[0] = unicode.ToUpper(r[0])
		b.WriteString(string(r))
	}
	return b.String()
}

// template splits a name that ends in a variable segment, as gpu.copy.size.<direction>.
func template(name string) (prefix, word string, ok bool) {
	prefix, rest, ok := strings.Cut(name, "<")
	word, end := strings.CutSuffix(rest, ">")
	return prefix, word, ok && end
}

func goType(t string) (string, error) {
	switch t {
	case "string":
		return "TypeString", nil
	case "int":
		return "TypeInt", nil
	case "double":
		return "TypeDouble", nil
	case "boolean":
		return "TypeBoolean", nil
	case "string[]":
		return "TypeStrings", nil
	case "int[]":
		return "TypeInts", nil
	}
	return "", fmt.Errorf("unknown type %q (use string, int, double, boolean, string[] or int[])", t)
}

func goInstrument(s string) (string, error) {
	switch s {
	case "gauge":
		return "InstrumentGauge", nil
	case "counter":
		return "InstrumentCounter", nil
	case "updowncounter":
		return "InstrumentUpDownCounter", nil
	case "histogram":
		return "InstrumentHistogram", nil
	}
	return "", fmt.Errorf("unknown instrument %q (use gauge, counter, updowncounter or histogram)", s)
}
