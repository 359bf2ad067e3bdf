// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configschema

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// Sections returns the sections of a configuration that hold components.
func Sections() []string {
	return []string{"receivers", "processors", "exporters", "connectors", "extensions"}
}

// Document returns the JSON schema (draft 7) of whole configurations: components by section and type. A type without a
// description (nil) takes any configuration.
func Document(id string, components map[string]map[string]*Node) ([]byte, error) {
	properties := map[string]any{"service": service()}
	for _, section := range Sections() {
		patterns := map[string]any{}
		for typ, n := range components[section] {
			schema := map[string]any{"type": []any{"object", "null"}}
			if n != nil {
				schema = n.JSON()
			}
			patterns["^"+regexp.QuoteMeta(typ)+"(/.+)?$"] = schema
		}
		properties[section] = map[string]any{
			"type": []any{"object", "null"}, "patternProperties": patterns, "additionalProperties": false,
		}
	}
	b, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "$id": id,
		"title": "Configuration of otelcol-gpu", "type": "object",
		"properties": properties, "additionalProperties": false,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("cannot encode the schema: %w", err)
	}
	return append(b, '\n'), nil
}

// service returns the schema of the section service. Telemetry is the declarative configuration of the OpenTelemetry
// SDKs, which has its own schema.
func service() map[string]any {
	ids := map[string]any{"type": []any{"array", "null"}, "items": map[string]any{"type": "string"}}
	pipeline := map[string]any{
		"type": "object", "additionalProperties": false,
		"properties": map[string]any{"receivers": ids, "processors": ids, "exporters": ids},
	}
	return map[string]any{
		"type": "object", "additionalProperties": false,
		"properties": map[string]any{
			"extensions": ids,
			"pipelines": map[string]any{
				"type": "object", "additionalProperties": false,
				"patternProperties": map[string]any{"^(traces|metrics|logs|profiles)(/.+)?$": pipeline},
			},
			"telemetry": map[string]any{
				"type": []any{"object", "null"}, "additionalProperties": false,
				"properties": map[string]any{
					"logs": map[string]any{}, "metrics": map[string]any{}, "traces": map[string]any{}, "resource": map[string]any{},
				},
			},
		},
	}
}
