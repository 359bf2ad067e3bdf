// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// MappingConfig converts another producer's spans to GPU spans. A span with gpu.operation.type is
// never changed. The first of the user's mappings whose conditions all hold is used, and then the
// first of the presets' mappings: a mapping can add to the values of a preset.
type MappingConfig struct {
	// Scope is a pattern (`*`, `?`, `[…]`) for the name of the instrumentation scope. Empty: any.
	Scope string `mapstructure:"scope"`
	// Span is a pattern for the span's name. Empty: any.
	Span string `mapstructure:"span"`
	// Kind is the span's kind in lower case: internal, server, client, producer, consumer. Empty:
	// any.
	Kind string `mapstructure:"kind"`
	// Has is an attribute that the span must have, or `name=value`: one with this value. Empty:
	// none.
	Has string `mapstructure:"has"`
	// Resource are patterns for attributes of the resource, by name; `*` matches any value. Empty:
	// any.
	Resource map[string]string `mapstructure:"resource"`
	// Type is the value for gpu.operation.type. Empty: one of Attributes, or a matching preset,
	// must produce it, otherwise the mapping does not apply. Without Type and Attributes, the
	// mapping excludes its spans from later mappings and from presets.
	Type string `mapstructure:"type"`
	// Attributes are copied in order; one whose target exists, or whose source does not, is
	// skipped.
	Attributes []AttributeConfig `mapstructure:"attributes"`
	_          struct{}
}

// AttributeConfig copies one attribute.
type AttributeConfig struct {
	// From is the producer's attribute. Empty: Value is used.
	From string `mapstructure:"from"`
	// To is one of otelgpu's span attributes, required; it decides the type.
	To string `mapstructure:"to"`
	// Per is an attribute that the number is divided by. Empty: none.
	Per string `mapstructure:"per"`
	// Scale multiplies a number, to convert units. 0 means 1. A string with a decimal number is
	// that number, and a string with a duration (`1.5s`, `250ms`) is a number of seconds.
	Scale float64 `mapstructure:"scale"`
	// Values translates strings (numbers by their decimal form); a value that is not a key is
	// skipped. Empty: unchanged.
	Values map[string]string `mapstructure:"values"`
	// Value is a constant string or number, used if From is empty.
	Value string `mapstructure:"value"`
	_     struct{}
}

var kinds = map[string]ptrace.SpanKind{
	"internal": ptrace.SpanKindInternal, "server": ptrace.SpanKindServer, "client": ptrace.SpanKindClient,
	"producer": ptrace.SpanKindProducer, "consumer": ptrace.SpanKindConsumer,
}

// validate checks a mapping; presets reports whether presets are configured, which can provide the
// type.
func (m *MappingConfig) validate(key string, presets bool) error {
	var bad configvalidate.List
	for name, pattern := range map[string]string{"scope": m.Scope, "span": m.Span} {
		if err := spanfacts.CheckPattern(pattern); err != nil {
			bad.Add("`%s::%s` must be a pattern, found %q: %w", key, name, pattern, err)
		}
	}
	if _, ok := kinds[m.Kind]; !ok && m.Kind != "" {
		bad.Add("`%s::kind` must be one of internal, server, client, producer, consumer, found %q", key, m.Kind)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Resource)) {
		pattern := m.Resource[name]
		bad.If(pattern == "" || spanfacts.CheckPattern(pattern) != nil,
			"`%s::resource::%s` must be a pattern (`*`: any value), found %q", key, name, pattern)
	}
	bad.If(m.Scope == "" && m.Span == "" && m.Kind == "" && m.Has == "" && len(m.Resource) == 0,
		"`%s` must have a condition: `scope`, `span`, `kind`, `has` or `resource`", key)
	types, _ := semconv.LookupAttribute(string(semconv.GPUOperationTypeKey))
	bad.If(m.Type != "" && !slices.Contains(types.Members, m.Type), "`%s::type` must be one of %s, found %q", key,
		strings.Join(types.Members, ", "), m.Type)
	hasType := m.Type != ""
	for i := range m.Attributes {
		a := &m.Attributes[i]
		bad.Join(a.validate(fmt.Sprintf("%s::attributes::%d", key, i)))
		hasType = hasType || a.To == string(semconv.GPUOperationTypeKey)
	}
	bad.If(!hasType && !presets, "`%s::type` must be set, or one of `attributes` or a preset must set %s", key,
		semconv.GPUOperationTypeKey)
	return bad.Err()
}

func (a *AttributeConfig) validate(key string) error {
	var bad configvalidate.List
	target, ok := semconv.LookupAttribute(a.To)
	switch {
	case !ok || !slices.Contains(target.On, "span"):
		bad.Add("`%s::to` must be a span attribute of the registry (docs/semconv), found %q", key, a.To)
	case target.Type != semconv.TypeString && target.Type != semconv.TypeInt && target.Type != semconv.TypeDouble:
		bad.Add("`%s::to` must be a string or a number, found %q of type %s", key, a.To, target.Type)
	case target.Type != semconv.TypeString && len(a.Values) > 0:
		bad.Add("`%s` must not have `values`, because %q is a number", key, a.To)
	case target.Type != semconv.TypeString && a.Value != "":
		_, _, number := a.value(pcommon.NewValueStr(a.Value))
		bad.If(!number, "`%s::value` must be a number, because %q is one, found %q", key, a.To, a.Value)
	}
	for _, v := range append(slices.Sorted(maps.Values(a.Values)), a.Value) {
		bad.If(ok && v != "" && len(target.Members) > 0 && !target.Open && !slices.Contains(target.Members, v),
			"`%s` must give one of %s, found %q", key, strings.Join(target.Members, ", "), v)
	}
	bad.If((a.From == "") == (a.Value == ""), "`%s` must have one of `from` and `value`", key)
	bad.If(a.Per != "" && (a.From == "" || ok && target.Type == semconv.TypeString),
		"`%s::per` must divide a number `from` an attribute, found `from` %q and `to` %q", key, a.From, a.To)
	bad.If(!(a.Scale >= 0) || math.IsInf(a.Scale, 0), "`%s::scale` must be a finite number above 0, found %g", key,
		a.Scale)
	return bad.Err()
}

// mapper converts spans of other producers to GPU spans.
type mapper struct {
	own, presets []MappingConfig
	resource     []ResourceConfig
}

// mapAll maps the spans of a batch that are not GPU spans yet and returns the number of mapped
// spans.
func (m *mapper) mapAll(td ptrace.Traces) (mapped int64) {
	for _, rs := range td.ResourceSpans().All() {
		for i := range m.resource {
			m.resource[i].copy(rs.Resource().Attributes())
		}
	}
	if len(m.own)+len(m.presets) == 0 {
		return 0
	}
	var own, presets []*MappingConfig
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			own = inScope(m.own, rs.Resource().Attributes(), ss.Scope().Name(), own[:0])
			presets = inScope(m.presets, rs.Resource().Attributes(), ss.Scope().Name(), presets[:0])
			if len(own)+len(presets) == 0 {
				continue
			}
			for _, s := range ss.Spans().All() {
				if _, gpu := s.Attributes().Get(string(semconv.GPUOperationTypeKey)); !gpu && apply(own, presets, s) {
					mapped++
				}
			}
		}
	}
	return mapped
}

// inScope appends the mappings that apply to a resource and a scope to dst.
func inScope(all []MappingConfig, resource pcommon.Map, scope string, dst []*MappingConfig) []*MappingConfig {
	for i := range all {
		if (all[i].Scope == "" || spanfacts.Matches(all[i].Scope, scope)) && all[i].on(resource) {
			dst = append(dst, &all[i])
		}
	}
	return dst
}

// on reports whether the mapping applies to the resource.
func (m *MappingConfig) on(resource pcommon.Map) bool {
	for name, pattern := range m.Resource {
		if v, ok := resource.Get(name); !ok || !spanfacts.Matches(pattern, v.AsString()) {
			return false
		}
	}
	return true
}

// apply maps a span by the first of the user's mappings that fits, and by the first preset's; it
// reports whether the span has a type then. The first mapping's values are kept; a span without a
// type is not changed.
func apply(own, presets []*MappingConfig, s ptrace.Span) bool {
	mine, preset := first(own, s), first(presets, s)
	if mine.excludes() || preset.excludes() && (mine == nil || !mine.typed(s.Attributes())) {
		return false
	}
	if mine == nil || preset == nil && !mine.typed(s.Attributes()) {
		// Use the preset alone if no mapping of the user fits, or it has nothing to add to.
		mine, preset = preset, nil
	}
	if mine == nil {
		return false
	}
	mine.apply(s.Attributes())
	if preset != nil {
		preset.apply(s.Attributes())
	}
	return true
}

// first returns the first mapping that matches and sets a type or excludes the span; if none does,
// the first that matches, because a preset may set the type.
func first(mappings []*MappingConfig, s ptrace.Span) *MappingConfig {
	var untyped *MappingConfig
	for _, m := range mappings {
		switch {
		case !m.fits(s):
		case m.excludes(), m.typed(s.Attributes()):
			return m
		case untyped == nil && m.Type == "" && !m.givesType():
			untyped = m
		}
	}
	return untyped
}

func (m *MappingConfig) excludes() bool { return m != nil && m.Type == "" && len(m.Attributes) == 0 }

// givesType reports whether one of the attributes can be the type.
func (m *MappingConfig) givesType() bool {
	return slices.ContainsFunc(m.Attributes, func(a AttributeConfig) bool {
		return a.To == string(
			semconv.GPUOperationTypeKey)
	})
}

// typed reports whether the mapping gives a span with these attributes a type.
func (m *MappingConfig) typed(attrs pcommon.Map) bool {
	if m.Type != "" {
		return true
	}
	for i := range m.Attributes {
		a := &m.Attributes[i]
		if a.To != string(semconv.GPUOperationTypeKey) {
			continue
		}
		if a.From == "" {
			return true
		}
		if from, ok := attrs.Get(a.From); ok {
			if text, _, ok := a.value(from); ok && text != "" {
				return true
			}
		}
	}
	return false
}

func (m *MappingConfig) fits(s ptrace.Span) bool {
	if m.Kind != "" && kinds[m.Kind] != s.Kind() {
		return false
	}
	if m.Has != "" {
		name, want, exact := strings.Cut(m.Has, "=")
		if v, ok := s.Attributes().Get(name); !ok || exact && v.AsString() != want {
			return false
		}
	}
	return m.Span == "" || spanfacts.Matches(m.Span, s.Name())
}

// apply copies the type and the attributes; existing values are kept.
func (m *MappingConfig) apply(attrs pcommon.Map) {
	if _, ok := attrs.Get(string(semconv.GPUOperationTypeKey)); !ok && m.Type != "" {
		attrs.PutStr(string(semconv.GPUOperationTypeKey), m.Type)
	}
	for i := range m.Attributes {
		m.Attributes[i].copy(attrs)
	}
}

// copy sets the target if it is absent and the source has a value; it reports whether it did.
func (a *AttributeConfig) copy(attrs pcommon.Map) bool {
	if _, exists := attrs.Get(a.To); exists {
		return false
	}
	from, ok := attrs.Get(a.From)
	if a.From == "" {
		from, ok = pcommon.NewValueStr(a.Value), true
	}
	if !ok {
		return false
	}
	text, number, ok := a.value(from)
	if !ok {
		return false
	}
	if a.Per != "" {
		per, ok := attrs.Get(a.Per)
		if !ok {
			return false
		}
		by, ok := numberOf(per)
		if number /= by; !ok || !(by > 0) || math.IsInf(number, 0) {
			return false
		}
	}
	target, _ := semconv.LookupAttribute(a.To)
	switch target.Type {
	case semconv.TypeString:
		if text == "" {
			return false
		}
		attrs.PutStr(a.To, text)
	case semconv.TypeInt:
		attrs.PutInt(a.To, int64(math.Round(number)))
	case semconv.TypeDouble:
		attrs.PutDouble(a.To, number)
	}
	return true
}

// value reads a source as text and as a number in the target's unit; ok is false if the target is a
// number and the source is not.
func (a *AttributeConfig) value(from pcommon.Value) (text string, n float64, ok bool) {
	text = from.AsString()
	if len(a.Values) > 0 {
		text, ok = a.Values[text]
		return text, 0, ok
	}
	target, _ := semconv.LookupAttribute(a.To)
	if target.Type == semconv.TypeString {
		return text, 0, from.Type() != pcommon.ValueTypeMap && from.Type() != pcommon.ValueTypeSlice
	}
	n, ok = numberOf(from)
	if a.Scale > 0 {
		n *= a.Scale
	}
	// int64 holds it, and no size or time is larger.
	return text, n, ok && math.Abs(n) < 1<<62 && (n >= 0 || slices.Contains(signed, a.To))
}

// signed are the numbers that may be below 0; negative values of the others are invalid.
var signed = []string{
	string(semconv.GPUStartDelayKey), string(semconv.GPUEndDelayKey),
	string(semconv.GPUMemoryDeltaKey), string(semconv.GPUMemoryAllocatedDeltaKey),
}

// numberOf returns a finite number, also of a text: a decimal number, as Rust's tracing exports
// unsigned ones, or a duration with its unit, as Rust and Go write them, in seconds.
func numberOf(v pcommon.Value) (float64, bool) {
	if v.Type() == pcommon.ValueTypeStr {
		text := v.Str()
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n, !math.IsInf(n, 0) && !math.IsNaN(n)
		}
		d, err := time.ParseDuration(text)
		return d.Seconds(), err == nil
	}
	return spanfacts.Number(v)
}
