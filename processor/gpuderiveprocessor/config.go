// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Config is the configuration of the gpu_derive processor.
type Config struct {
	// Samples is the gpu_samples extension with the devices' models, limits and MIG shares. Default
	// none: the model is read from the span or its resource.
	Samples *component.ID `mapstructure:"samples"`
	// Peaks override or add device models; if several match, later fields override earlier ones.
	// Default none.
	Peaks []PeakConfig `mapstructure:"peaks"`
	// Model is used for spans without a device model. Empty: such spans get no utilization.
	Model string `mapstructure:"model"`
	// Precision is used for FLOPs without a precision. Empty: such FLOPs are compared with no peak.
	Precision string `mapstructure:"precision"`
	// Floor is the duration of an empty section if the producer does not state it (scope attribute
	// gpu.floor.duration). No rate is derived for spans timed by events that are shorter than 10
	// times the floor; profilers' records have no floor. Default 2µs; 0: no floor.
	Floor time.Duration `mapstructure:"floor"`
	// Presets are predefined mappings for spans of other producers: dynamo, gen_ai, nemo_lens, obi,
	// pytorch, sdk, sglang, tgi, triton, vllm. Default none.
	Presets []string `mapstructure:"presets"`
	// Mappings of attributes of other producers, tried before the presets. Default none.
	Mappings []MappingConfig `mapstructure:"mappings"`
	// ResourceMappings copy resource attributes of other producers, in order, before the presets'
	// own. Default none.
	ResourceMappings []ResourceConfig `mapstructure:"resource_mappings"`
	// AssembleSteps sums the spans below a step, for producers that write no totals on their steps.
	// Default off; the empty key turns it on.
	AssembleSteps configoptional.Optional[AssembleConfig] `mapstructure:"assemble_steps"`
	// Attributes is how much detail is written on a span: lean for the main results, with quality
	// only if it is unusual and values of five significant digits, or full for all known values.
	// Default lean.
	Attributes spanfacts.Level `mapstructure:"attributes" enum:"lean,full"`
	// Repeat are attributes of the scope that every GPU span gets as well, for stores that show no
	// scopes. Default none.
	Repeat []string `mapstructure:"repeat"`
}

// PeakConfig states peaks of the device models that a pattern matches. A field of 0 or an omitted
// field does not change the known value.
type PeakConfig struct {
	// Model is a pattern (`*`, `?`, `[…]`) for the driver's name of the model without MIG suffix,
	// not case-sensitive.
	Model string `mapstructure:"model"`
	// MemoryBandwidth is the bandwidth of device memory, in bytes per second.
	MemoryBandwidth float64 `mapstructure:"memory_bandwidth"`
	// HostBandwidth is the bandwidth of one direction of the link to the host, in bytes per second.
	HostBandwidth float64 `mapstructure:"host_bandwidth"`
	// InterconnectBandwidth is the bandwidth of one direction of NVLink or xGMI, all links
	// together, in bytes per second.
	InterconnectBandwidth float64 `mapstructure:"interconnect_bandwidth"`
	// InterconnectDevices is the number of devices that the interconnect connects at that rate.
	InterconnectDevices int `mapstructure:"interconnect_devices"`
	// FLOPRate is the dense rate in FLOP per second, by precision.
	FLOPRate map[string]float64 `mapstructure:"flop_rate"`
	_        struct{}
}

// AssembleConfig limits the assembly of steps.
type AssembleConfig struct {
	// MaxSums is the maximum number of partial sums in memory, one for each span whose children
	// arrived before it; positive.
	MaxSums int `mapstructure:"max_sums"`
	// MaxAge is how long a partial sum waits for its span; positive.
	MaxAge time.Duration `mapstructure:"max_age"`
	// MaxIntervals is the maximum number of separate intervals of each phase of a step, at least 2;
	// further ones are merged with the nearest, and the gap between them counts as covered.
	MaxIntervals int `mapstructure:"max_intervals"`
	_            struct{}
}

func createDefaultConfig() component.Config {
	return &Config{
		Floor:         2 * time.Microsecond,
		AssembleSteps: configoptional.Default(AssembleConfig{MaxSums: 4096, MaxAge: time.Minute, MaxIntervals: 256}),
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Floor < 0, "`floor` must not be negative, found %s", c.Floor)
	bad.If(c.Precision != "" && !slices.Contains(peaks.Precisions(), c.Precision),
		"`precision` must be one of %s, found %q", strings.Join(peaks.Precisions(), ", "), c.Precision)
	bad.Names("repeat", c.Repeat)
	for i, name := range c.Presets {
		if _, ok := presets()[name]; !ok {
			bad.Add("`presets::%d` must be one of %s, found %q", i, strings.Join(presetNames(), ", "), name)
		}
	}
	for i := range c.Peaks {
		bad.Join(c.Peaks[i].validate(fmt.Sprintf("peaks::%d", i)))
	}
	for i := range c.Mappings {
		bad.Join(c.Mappings[i].validate(fmt.Sprintf("mappings::%d", i),
			slices.ContainsFunc(c.Presets, func(name string) bool { return presets()[name].Mappings != nil })))
	}
	for i := range c.ResourceMappings {
		bad.Join(c.ResourceMappings[i].validate(fmt.Sprintf("resource_mappings::%d", i)))
	}
	if a := c.AssembleSteps.Get(); a != nil {
		configvalidate.Positive(&bad, "assemble_steps::max_sums", a.MaxSums)
		configvalidate.Positive(&bad, "assemble_steps::max_age", a.MaxAge)
		bad.If(a.MaxIntervals < 2, "`assemble_steps::max_intervals` must be at least 2, found %d", a.MaxIntervals)
	}
	return bad.Err()
}

// leastPeak is below every link and every pipe: a smaller number was probably meant in GB/s or
// TFLOP/s.
const leastPeak = 1e6

func (p *PeakConfig) validate(key string) error {
	var bad configvalidate.List
	if p.Model == "" {
		bad.Add("`%s::model` must not be empty (`*` matches every model)", key)
	} else if err := spanfacts.CheckPattern(p.Model); err != nil {
		bad.Add("`%s::model` must be a pattern, found %q: %w", key, p.Model, err)
	}
	rate := func(name, unit string, v float64) {
		bad.If(!(v >= 0) || math.IsInf(v, 0),
			"`%s::%s` must be a finite number and not negative (0: not stated), found %g", key, name, v)
		bad.If(v > 0 && v < leastPeak, "`%s::%s` must be in %s, found %g", key, name, unit, v)
	}
	const bytes, flops = "bytes per second, such as 3.35e12", "FLOP per second, such as 9.9e14"
	rate("memory_bandwidth", bytes, p.MemoryBandwidth)
	rate("host_bandwidth", bytes, p.HostBandwidth)
	rate("interconnect_bandwidth", bytes, p.InterconnectBandwidth)
	bad.If(p.InterconnectDevices < 0, "`%s::interconnect_devices` must not be negative, found %d", key,
		p.InterconnectDevices)
	for _, precision := range slices.Sorted(maps.Keys(p.FLOPRate)) {
		bad.If(!slices.Contains(peaks.Precisions(), precision), "`%s::flop_rate` must have keys of %s, found %q", key,
			strings.Join(peaks.Precisions(), ", "), precision)
		rate("flop_rate::"+precision, flops, p.FLOPRate[precision])
	}
	return bad.Err()
}
