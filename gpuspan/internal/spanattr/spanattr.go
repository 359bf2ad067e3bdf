// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spanattr builds attributes that exporters accept.
package spanattr

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// AppendValid appends attributes of the application. A string that is not UTF-8, such as a broken
// mangled name, would cost the whole batch of spans in the exporter.
func AppendValid(kv, own []attribute.KeyValue) []attribute.KeyValue {
	for _, a := range own {
		a.Key = attribute.Key(ValidText(string(a.Key)))
		switch a.Value.Type() {
		case attribute.STRING:
			a.Value = attribute.StringValue(ValidText(a.Value.AsString()))
		case attribute.STRINGSLICE:
			list := a.Value.AsStringSlice()
			for i, s := range list {
				list[i] = ValidText(s)
			}
			a.Value = attribute.StringSliceValue(list)
		}
		kv = append(kv, a)
	}
	return kv
}

// AppendStated appends an attribute unless its value is empty.
func AppendStated(kv []attribute.KeyValue, k attribute.Key, v string) []attribute.KeyValue {
	if v == "" {
		return kv
	}
	return append(kv, k.String(ValidText(v)))
}

// ValidText replaces invalid UTF-8: OTLP cannot encode it, and a batch with such a span would be
// lost whole, with the spans of others.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Seconds returns ns in the unit of attributes.
func Seconds(ns int64) float64 { return float64(ns) / 1e9 }
