// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configschema_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/configschema"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type Common struct {
	// Level is how much.
	Level spanfacts.Level `mapstructure:"level"`
}

type part struct {
	// Size is how many
	// there are.
	Size int `mapstructure:"size"`
}

type config struct {
	Common  `mapstructure:",squash"`
	Name    string                        `mapstructure:"name" enum:"a,b"`
	Every   time.Duration                 `mapstructure:"every"`
	Ratio   float64                       `mapstructure:"ratio"`
	Off     bool                          `mapstructure:"off"`
	ID      *component.ID                 `mapstructure:"id"`
	Bounds  []time.Duration               `mapstructure:"bounds"`
	Labels  map[string]string             `mapstructure:"labels"`
	Part    configoptional.Optional[part] `mapstructure:"part"`
	Retry   configretry.BackOffConfig     `mapstructure:"retry"`
	Ignored string                        `mapstructure:"-"`
	hidden  string
	Rest    map[string]any `mapstructure:",remain"`
}

func example() *config {
	return &config{
		Name: "a", Every: 90 * time.Minute, Bounds: []time.Duration{time.Second, time.Hour},
		Part: configoptional.Default(part{Size: 3}), Ignored: "x", hidden: "y",
		Retry: configretry.BackOffConfig{InitialInterval: time.Second},
	}
}

func TestComponentSchemaHasTypesAndDefaults(t *testing.T) {
	n, err := configschema.Of(example())
	require.NoError(t, err)
	b, err := n.YAML()
	require.NoError(t, err)
	assert.Equal(t, `# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
#
# Generated from the configuration struct (make generate). DO NOT EDIT.
properties:
  bounds:
    default:
      - 1s
      - 1h
    items:
      format: duration
      type: string
      x-customType: time.Duration
    type: array
  every:
    default: 1h30m
    format: duration
    type: string
    x-customType: time.Duration
  id:
    type: string
    x-customType: go.opentelemetry.io/collector/component.ID
    x-pointer: true
  labels:
    additionalProperties:
      type: string
    type: object
  level:
    default: lean
    type: string
  name:
    default: a
    enum:
      - a
      - b
    type: string
  "off":
    default: false
    type: boolean
  part:
    properties:
      enabled:
        default: false
        description: Enables the section. A section that is present is enabled unless this is false.
        type: boolean
      size:
        default: 3
        type: integer
    type: object
    x-optional: true
  ratio:
    default: 0
    type: number
  retry:
    $ref: go.opentelemetry.io/collector/config/configretry.back_off_config
    default:
      enabled: false
      initial_interval: 1s
      max_elapsed_time: 0s
      max_interval: 0s
      multiplier: 0
      randomization_factor: 0
type: object
`, string(b))
}

func TestJSONSchemaRejectsFurtherKeysUnlessTheStructTakesThem(t *testing.T) {
	n, err := configschema.Of(example())
	require.NoError(t, err)
	all := n.JSON()
	assert.NotContains(t, all, "additionalProperties", "Rest takes them")
	inner := all["properties"].(map[string]any)["part"].(map[string]any)
	assert.Equal(t, false, inner["additionalProperties"])
	_, err = json.Marshal(all)
	assert.NoError(t, err)
}

type header struct {
	Name  string `mapstructure:"name"`
	Value string `mapstructure:"value"`
}

type sampler struct {
	Root    *sampler `mapstructure:"root"`
	Headers []header `mapstructure:"headers"`
	Further any      `mapstructure:",remain"`
}

type telemetry struct {
	Sampler  sampler `mapstructure:"sampler"`
	Resource struct {
		Legacy map[string]any `mapstructure:",remain"`
	} `mapstructure:"resource"`
}

func TestTelemetryIsDescribedToAnyDepth(t *testing.T) {
	own, err := configschema.Of(&telemetry{})
	require.NoError(t, err)
	b, err := configschema.Document("https://example.com/s.json", nil, own)
	require.NoError(t, err)
	text, closed := `{"type": ["string", "number", "boolean", "null"]}`, `"type": ["object", "null"], "additionalProperties": false`
	sampler := `{` + closed + `, "properties": {"root": {"$ref": "#/definitions/sampler"}, "headers": {"anyOf": [
		{"type": ["array", "null"], "items": {` + closed + `, "properties": {"name": ` + text + `, "value": ` + text + `}}},
		{"type": "object", "additionalProperties": ` + text + `}]}}}`
	var doc struct {
		Definitions json.RawMessage
		Properties  struct {
			Service struct {
				Properties struct{ Telemetry json.RawMessage }
			}
		}
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	assert.JSONEq(t, `{"sampler": `+sampler+`}`, string(doc.Definitions))
	assert.JSONEq(t, `{`+closed+`, "properties": {"sampler": `+sampler+`,
		"resource": {"type": ["object", "null"], "properties": {}, "additionalProperties": {"type": ["string", "null"]}}}}`,
		string(doc.Properties.Service.Properties.Telemetry))
}

func TestDocumentNamesComponentsByType(t *testing.T) {
	n, err := configschema.Of(&part{})
	require.NoError(t, err)
	own, err := configschema.Of(&telemetry{})
	require.NoError(t, err)
	b, err := configschema.Document("https://example.com/s.json", map[string]map[string]*configschema.Node{
		"receivers": {"a_b": n, "other": nil},
	}, own)
	require.NoError(t, err)
	var doc struct {
		Properties map[string]struct {
			PatternProperties map[string]struct {
				Properties map[string]any
			} `json:"patternProperties"`
			AdditionalProperties bool `json:"additionalProperties"`
		}
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	receivers := doc.Properties["receivers"]
	assert.Contains(t, receivers.PatternProperties[`^a_b(/.+)?$`].Properties, "size")
	assert.Empty(t, receivers.PatternProperties[`^other(/.+)?$`].Properties)
	assert.False(t, receivers.AdditionalProperties)
	assert.Len(t, doc.Properties, 6)
}
