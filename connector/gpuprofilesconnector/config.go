// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// Config is the configuration of the gpu_profiles connector. Values must be positive unless 0 is
// mentioned.
type Config struct {
	// Window is the length of a profile, aligned to the clock, at least 1s.
	Window time.Duration `mapstructure:"window"`
	// Settle is how long a trace must have been quiet before its spans are counted.
	Settle time.Duration `mapstructure:"settle"`
	// MaxWait is the maximum time for which a span waits for its parents, at least Settle.
	MaxWait time.Duration `mapstructure:"max_wait"`
	// MaxGap is the longest time between two activities of a device that counts as idle; a longer
	// one is a pause.
	MaxGap time.Duration `mapstructure:"max_gap"`
	// MaxStacks is the maximum number of stacks of a window; further ones count under the stack
	// "(other stacks)".
	MaxStacks int `mapstructure:"max_stacks"`
	// MaxSpans is the maximum number of waiting spans, about 200 bytes each; at the limit traces
	// are counted early.
	MaxSpans int `mapstructure:"max_spans"`
	// MaxRepeats is the number of GPU spans to remember, 16 to 32 bytes each, so that a span that
	// arrives again is counted once. 0: none.
	MaxRepeats int `mapstructure:"max_repeats"`
}

func createDefaultConfig() component.Config {
	o := stackprofile.DefaultOptions()
	return &Config{
		Window: o.Window, Settle: o.Settle, MaxWait: o.MaxWait, MaxGap: o.MaxGap, MaxStacks: o.MaxStacks,
		MaxSpans: o.MaxSpans, MaxRepeats: o.Repeats,
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Window < time.Second, "`window` must be at least 1s, found %s", c.Window)
	configvalidate.Positive(&bad, "settle", c.Settle)
	bad.If(c.MaxWait < c.Settle, "`max_wait` must not be below `settle`, found %s", c.MaxWait)
	configvalidate.Positive(&bad, "max_gap", c.MaxGap)
	configvalidate.Positive(&bad, "max_stacks", c.MaxStacks)
	configvalidate.Positive(&bad, "max_spans", c.MaxSpans)
	bad.If(c.MaxRepeats < 0, "`max_repeats` must not be negative, found %d", c.MaxRepeats)
	return bad.Err()
}

func (c *Config) options() stackprofile.Options {
	o := stackprofile.Options{
		Window: c.Window, Settle: c.Settle, MaxWait: c.MaxWait, MaxGap: c.MaxGap, MaxStacks: c.MaxStacks,
		MaxSpans: c.MaxSpans, Repeats: c.MaxRepeats, Weights: true,
	}
	if o.Repeats == 0 {
		o.Repeats = -1
	}
	return o
}
