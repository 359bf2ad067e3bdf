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

// Document returns the JSON schema (draft 7) of whole configurations: components by section and
// type, and the Collector's own telemetry. A type without a description (nil) takes any
// configuration.
func Document(id string, components map[string]map[string]*Node, telemetry *Node) ([]byte, error) {
	definitions := map[string]any{}
	telemetry.define(definitions)
	properties := map[string]any{"service": service(telemetry)}
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
		"properties": properties, "additionalProperties": false, "definitions": definitions,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("cannot encode the schema: %w", err)
	}
	return append(b, '\n'), nil
}

// service returns the schema of the section service.
func service(telemetry *Node) map[string]any {
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
			"telemetry": collectorTelemetry(telemetry),
		},
	}
}

// collectorTelemetry returns the schema of the Collector's own telemetry. Attributes of the
// resource are a list or keys of the resource itself.
func collectorTelemetry(n *Node) map[string]any {
	schema := n.JSON()
	resource := n.Keys()["resource"].JSON()
	resource["additionalProperties"] = map[string]any{"type": []any{"string", "null"}}
	schema["properties"].(map[string]any)["resource"] = resource
	return schema
}
