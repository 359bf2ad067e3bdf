// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconv_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/otelgpu/otelgpu/semconv"
)

var (
	name = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*(\.[a-z][a-z0-9]*(_[a-z0-9]+)*)*(\.<[a-z]+>)?$`)
	unit = regexp.MustCompile(`^(1|s|By|Hz|W|J|Cel|\{[a-z]+\})(/(s|By|\{[a-z]+\}))?$`)
)

func attributeNames() []string {
	var out []string
	for _, a := range semconv.Attributes() {
		out = append(out, a.Name)
	}
	return out
}

func metricNames() []string {
	var out []string
	for _, m := range semconv.Metrics() {
		out = append(out, m.Name)
	}
	return out
}

func eventNames() []string {
	var out []string
	for _, e := range semconv.Events() {
		out = append(out, e.Name)
	}
	return out
}

func TestNamesAreSortedUniqueDottedLowerSnake(t *testing.T) {
	for kind, names := range map[string][]string{
		"attribute": attributeNames(), "metric": metricNames(),
		"event": eventNames(),
	} {
		for i, n := range names {
			if !name.MatchString(n) {
				t.Errorf("%s %q is not dotted lower_snake", kind, n)
			}
			if i > 0 && names[i-1] >= n {
				t.Errorf("%s %q stands after %q", kind, n, names[i-1])
			}
		}
	}
}

// A name must not also be a namespace, because a backend that stores gpu.x as a field cannot store
// gpu.x.y. As in OpenTelemetry, attributes, metrics and events have separate namespaces: a metric
// may share an attribute's name.
func TestNoNameIsANamespace(t *testing.T) {
	for kind, names := range map[string][]string{
		"attribute": attributeNames(), "metric": metricNames(),
		"event": eventNames(),
	} {
		for _, n := range names {
			for _, m := range names {
				if strings.HasPrefix(m, n+".") {
					t.Errorf("%s %q is also a namespace, of %q", kind, n, m)
				}
			}
		}
	}
}

func TestUnitsAreUCUMAndFitTheType(t *testing.T) {
	for _, a := range semconv.Attributes() {
		if a.Unit == "" {
			if a.Type == semconv.TypeDouble {
				t.Errorf("attribute %s: a double has no unit", a.Name)
			}
			continue
		}
		if !unit.MatchString(a.Unit) {
			t.Errorf("attribute %s: unit %q is not UCUM", a.Name, a.Unit)
		}
		switch a.Type {
		case semconv.TypeString, semconv.TypeStrings, semconv.TypeBoolean:
			t.Errorf("attribute %s: a %s has unit %q", a.Name, a.Type, a.Unit)
		case semconv.TypeInt:
			if a.Unit != "By" && !strings.HasPrefix(a.Unit, "{") {
				t.Errorf("attribute %s: an int has unit %q (sizes and counts are ints, all else double)", a.Name, a.Unit)
			}
		}
		if strings.HasSuffix(a.Name, ".duration") && a.Unit != "s" {
			t.Errorf("attribute %s: durations are seconds, not %q", a.Name, a.Unit)
		}
		if strings.HasSuffix(a.Name, ".utilization") && a.Unit != "1" {
			t.Errorf("attribute %s: utilization is a ratio, not %q", a.Name, a.Unit)
		}
	}
	for _, m := range semconv.Metrics() {
		if !unit.MatchString(m.Unit) {
			t.Errorf("metric %s: unit %q is not UCUM", m.Name, m.Unit)
		}
	}
}

func TestEntriesHaveOwnersWritersAndABrief(t *testing.T) {
	owners := []string{"resource", "scope", "span", "metric", "log"}
	writers := []string{
		"gpuspan", "kineto", "nsys", "xplane", "gpu", "gpu_join", "gpu_derive", "gpu_metrics", "gpu_requests", "collectives", "gpu_goodput",
		"gpu_capture", "convert", "user",
	}
	check := func(name, brief string, from []string) {
		if !strings.HasSuffix(brief, ".") || strings.Contains(brief, "\n") {
			t.Errorf("%s: the brief %q is not a sentence on one line", name, brief)
		}
		if len(from) == 0 {
			t.Errorf("%s has no writer", name)
		}
		for _, w := range from {
			if !slices.Contains(writers, w) {
				t.Errorf("%s: unknown writer %q", name, w)
			}
		}
	}
	for _, a := range semconv.Attributes() {
		check(a.Name, a.Brief, a.Writers)
		if len(a.On) == 0 {
			t.Errorf("%s is nowhere", a.Name)
		}
		for _, on := range a.On {
			if !slices.Contains(owners, on) {
				t.Errorf("%s: unknown owner %q", a.Name, on)
			}
		}
		if !slices.IsSorted(a.Members) {
			t.Errorf("%s: members %q are not sorted", a.Name, a.Members)
		}
		if a.Type == "" {
			t.Errorf("%s has no type", a.Name)
		}
	}
	for _, m := range semconv.Metrics() {
		check(m.Name, m.Brief, m.Writers)
		if m.Instrument == "" {
			t.Errorf("%s has no instrument", m.Name)
		}
		for _, a := range m.Attributes {
			if x, ok := semconv.LookupAttribute(a); !ok || !slices.Contains(x.On, "metric") {
				t.Errorf("metric %s: %s is not an attribute of metrics", m.Name, a)
			}
		}
	}
	for _, e := range semconv.Events() {
		check(e.Name, e.Brief, e.Writers)
		for _, a := range e.Attributes {
			if x, ok := semconv.LookupAttribute(a); !ok || !slices.Contains(x.On, "log") {
				t.Errorf("event %s: %s is not an attribute of log records", e.Name, a)
			}
		}
	}
}

// Metrics of the hardware conventions 1.44.0, as defined in OpenTelemetry's registry.
func TestHardwareMetricsFollowOpenTelemetry(t *testing.T) {
	want := map[string]string{
		"hw.energy":                 "counter J",
		"hw.errors":                 "counter {error}",
		"hw.fan.speed_ratio":        "gauge 1",
		"hw.gpu.memory.limit":       "updowncounter By",
		"hw.gpu.memory.usage":       "updowncounter By",
		"hw.gpu.memory.utilization": "gauge 1",
		"hw.gpu.utilization":        "gauge 1",
		"hw.power":                  "gauge W",
		"hw.status":                 "updowncounter 1",
		"hw.temperature":            "gauge Cel",
	}
	got := map[string]string{}
	for _, m := range semconv.Metrics() {
		if m.Origin == "otel" {
			got[m.Name] = string(m.Instrument) + " " + m.Unit
		}
		if (m.Origin == "otel") != strings.HasPrefix(m.Name, "hw.") {
			t.Errorf("%s: origin %q does not fit the name", m.Name, m.Origin)
		}
	}
	for n, w := range want {
		if got[n] != w {
			t.Errorf("%s is %q, want %q", n, got[n], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d metrics of OpenTelemetry's, want %d", len(got), len(want))
	}
}

func TestMetricDescriptionsMatchTheirConstants(t *testing.T) {
	for name, want := range map[string]string{
		semconv.HWEnergyName: semconv.HWEnergyDescription, semconv.HWStatusName: semconv.HWStatusDescription,
		semconv.GPUPipeUtilizationName: semconv.GPUPipeUtilizationDescription, semconv.HWErrorsName: semconv.HWErrorsDescription,
	} {
		m, ok := semconv.LookupMetric(name)
		if !ok || m.Description() != want {
			t.Errorf("%s: %q, want %q", name, m.Description(), want)
		}
	}
}
