// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configschema

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const head = `# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
#
# Generated from the configuration struct (make generate). DO NOT EDIT.
`

// YAML renders a configuration in the form of contrib's config.schema.yaml. Structs of other modules become references
// by import path, with the default values that this component gives them.
func (n *Node) YAML() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(head)
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n.component()); err != nil {
		return nil, fmt.Errorf("cannot encode a schema: %w", err)
	}
	return b.Bytes(), nil
}

// component returns a value in contrib's form. yaml sorts the keys of maps; contrib sorts properties, too.
func (n *Node) component() map[string]any {
	out := map[string]any{}
	set := func(key string, value any, present bool) {
		if present {
			out[key] = value
		}
	}
	set("description", n.Description, n.Description != "")
	set("x-optional", true, n.Optional)
	set("x-pointer", true, n.Pointer)
	set("enum", n.Enum, n.Enum != nil)
	set("default", n.Default, n.Default != nil)
	switch {
	case n.External():
		out["$ref"] = reference(n)
		set("default", n.defaults(), len(n.defaults()) > 0)
		return out
	case n.Duration:
		out["type"], out["format"], out["x-customType"] = String, "duration", "time.Duration"
	case n.Kind == Map:
		out["type"], out["additionalProperties"] = Object, n.Elem.component()
	case n.Kind == Array:
		out["type"], out["items"] = Array, n.Elem.component()
	case n.Kind == Object:
		out["type"] = Object
		properties := map[string]any{}
		var all []any
		for _, f := range n.Fields {
			if f.Name == "" {
				all = append(all, f.Value.component())
			} else {
				properties[f.Name] = f.Value.component()
			}
		}
		set("properties", properties, len(properties) > 0)
		set("allOf", all, len(all) > 0)
	case n.Kind != Any:
		out["type"] = n.Kind
		set("x-customType", n.Type.String(), n.Type.String() == "component.ID")
	}
	if out["x-customType"] == "component.ID" {
		out["x-customType"] = n.Type.PkgPath() + ".ID"
	}
	return out
}

// defaults returns the default values below a struct, by key.
func (n *Node) defaults() map[string]any {
	out := map[string]any{}
	for _, f := range n.Fields {
		v := f.Value.Default
		if f.Value.Kind == Object {
			inner := f.Value.defaults()
			if f.Name == "" {
				maps.Copy(out, inner)
				continue
			}
			if off, ok := inner["enabled"]; ok && f.Value.Optional && off == false || len(inner) == 0 {
				continue
			}
			v = inner
		}
		if v != nil {
			out[f.Name] = v
		}
	}
	return out
}

var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// reference names a struct of another module as contrib does: its package, and its name with underscores.
func reference(n *Node) string {
	name, _, _ := strings.Cut(n.Type.Name(), "[")
	return n.Type.PkgPath() + "." + strings.ToLower(wordStart.ReplaceAllString(name, "${1}_${2}"))
}

// variable matches a value that the Collector replaces before it reads the configuration, as ${env:NAME}.
var variable = map[string]any{"type": "string", "pattern": `\$\{`}

// JSON returns a value as JSON schema, without references. It accepts what the Collector accepts: a variable for any
// value, an empty key for an object or a list, a number or boolean for a string.
func (n *Node) JSON() map[string]any {
	out := map[string]any{}
	switch {
	case n.Recursive:
		out["$ref"] = "#/definitions/" + n.Type.Name()
		return out // other keys beside a reference are ignored
	case n.Kind == Any:
	case n.Enum != nil:
		out["anyOf"] = []any{map[string]any{"enum": n.Enum}, variable}
	case n.Duration:
		text := map[string]any{"type": "string", "pattern": durationPattern}
		out["anyOf"] = []any{text, variable, map[string]any{"const": 0}}
	case n.Kind == String:
		out["type"] = []any{"string", "number", "boolean", "null"}
	case n.Kind == Object:
		out["type"] = []any{"object", "null"}
		properties := map[string]any{}
		n.properties(properties)
		out["properties"] = properties
		if !n.open() {
			out["additionalProperties"] = false
		}
	case n.Kind == Map:
		out["type"], out["additionalProperties"] = []any{"object", "null"}, n.Elem.JSON()
	case n.pairs():
		values := map[string]any{"type": "object", "additionalProperties": n.Elem.Keys()["value"].JSON()}
		out["anyOf"] = []any{map[string]any{"type": []any{"array", "null"}, "items": n.Elem.JSON()}, values}
	case n.Kind == Array:
		out["type"], out["items"] = []any{"array", "null"}, n.Elem.JSON()
		if n.Elem.Kind == String { // a text is split at commas
			out["type"] = []any{"array", "null", "string"}
		}
	default:
		out["anyOf"] = []any{map[string]any{"type": n.Kind}, variable}
	}
	if n.Description != "" {
		out["description"] = n.Description
	}
	if n.Default != nil {
		out["default"] = n.Default
	}
	return out
}

// pairs reports whether the value is a list of names and values, such as the headers of an exporter. The Collector also
// reads a map.
func (n *Node) pairs() bool {
	return n.Kind == Array && slices.Equal(slices.Sorted(maps.Keys(n.Elem.Keys())), []string{"name", "value"})
}

const durationPattern = `^[-+]?(0|([0-9]*(\.[0-9]*)?(ns|us|µs|μs|ms|s|m|h))+)$`

func (n *Node) properties(into map[string]any) {
	for _, f := range n.Fields {
		if f.Name == "" {
			f.Value.properties(into)
		} else {
			into[f.Name] = f.Value.JSON()
		}
	}
}

func (n *Node) open() bool {
	return n.Open || slices.ContainsFunc(n.Fields, func(f Field) bool { return f.Name == "" && f.Value.open() })
}

// define collects the schemas of the types that Recursive values refer to, by name.
func (n *Node) define(into map[string]any) { n.types(nil, into) }

func (n *Node) types(outside []*Node, into map[string]any) {
	if n.Recursive {
		i := slices.IndexFunc(outside, func(o *Node) bool { return o.Type == n.Type })
		into[n.Type.Name()] = outside[i].JSON()
		return
	}
	outside = append(outside, n)
	for _, f := range n.Fields {
		f.Value.types(outside, into)
	}
	if n.Elem != nil {
		n.Elem.types(outside, into)
	}
}
