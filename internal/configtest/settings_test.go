// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package configtest_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/otelgpu/otelgpu/internal/configschema"
)

// checkSettings checks that the valid entries of testdata/config.yaml together state each setting of
// the configuration, so that a test loads all of them. Structs of other modules are stated as a
// whole.
func checkSettings(t *testing.T, defaults func() component.Config) {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	var entries []any
	for id, values := range all.ToStringMap() {
		sub, err := all.Sub(id)
		require.NoError(t, err)
		if cfg := defaults(); sub.Unmarshal(cfg) == nil && confmap.Validate(cfg) == nil {
			entries = append(entries, values)
		}
	}
	node, err := configschema.Of(defaults())
	require.NoError(t, err)
	for _, key := range unstated(node, entries, "") {
		assert.Fail(t, "no valid entry of testdata/config.yaml states "+key)
	}
}

// unstated returns the settings below a node that none of the values states.
func unstated(node *configschema.Node, values []any, prefix string) (list []string) {
	for _, f := range node.Fields {
		key, field := f.Name, f.Value
		if key == "" || node.Optional && key == "enabled" { // of the Collector
			continue
		}
		stated := false
		var inner []any
		for _, v := range values {
			section, _ := v.(map[string]any) // an empty key is none
			value, ok := section[key]
			stated = stated || ok
			inner = append(inner, value)
		}
		if !stated {
			list = append(list, prefix+key)
			continue
		}
		for field.Elem != nil {
			field, inner = field.Elem, elements(inner)
		}
		if field.Kind == configschema.Object && !field.External() && !field.Recursive {
			list = append(list, unstated(field, inner, prefix+key+"::")...)
		}
	}
	return list
}

// elements returns the elements of lists and maps.
func elements(all []any) (list []any) {
	for _, v := range all {
		switch v := v.(type) {
		case []any:
			list = append(list, v...)
		case map[string]any:
			list = slices.AppendSeq(list, maps.Values(v))
		}
	}
	return list
}
