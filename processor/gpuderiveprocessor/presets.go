// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	_ "embed" // of the presets
	"maps"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/confmap"
)

// preset has mappings for spans of a producer.
type preset struct {
	Mappings         []MappingConfig  `mapstructure:"mappings"`
	ResourceMappings []ResourceConfig `mapstructure:"resource_mappings"`
}

//go:embed presets.yaml
var presetsYAML []byte

// presets returns the presets by name. A test ensures that the file can be read.
var presets = sync.OnceValue(func() map[string]preset {
	all, _ := readPresets()
	return all
})

func readPresets() (all map[string]preset, err error) {
	yaml, err := confmap.NewRetrievedFromYAML(presetsYAML)
	if err != nil {
		return nil, err
	}
	conf, err := yaml.AsConf()
	if err != nil {
		return nil, err
	}
	return all, conf.Unmarshal(&all)
}

func presetNames() []string { return slices.Sorted(maps.Keys(presets())) }
