// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
)

// StartAt is where the reading of files begins that exist when the Collector starts.
type StartAt string

// Values of StartAt.
const (
	StartAtEnd       StartAt = "end"
	StartAtBeginning StartAt = "beginning"
)

// Config configures the receiver. At least one of the inputs must be set.
type Config struct {
	// Inspector reads the files of NCCL's profiler plugin Inspector.
	Inspector configoptional.Optional[InspectorConfig] `mapstructure:"inspector"`
	// FlightRecorder reads the dumps of PyTorch's flight recorder.
	FlightRecorder configoptional.Optional[FlightRecorderConfig] `mapstructure:"flight_recorder"`
	// Samples is the gpu_samples extension in which gpu_goodput keeps the newest span of each rank; a
	// hang is linked with it. Default none.
	Samples *component.ID `mapstructure:"samples"`
	// Interval is how often files are read and metrics are sent. A late rank is named after 7 or more
	// intervals.
	Interval time.Duration `mapstructure:"interval"`
	// CardinalityLimit is the maximum number of series of a metric of a process.
	CardinalityLimit int `mapstructure:"cardinality_limit"`
	// prevent unkeyed literal initialization
	_ struct{}
}

// InspectorConfig selects the files of NCCL Inspector.
type InspectorConfig struct {
	// Include are patterns of paths, with ** for any number of folders; at least one.
	Include []string `mapstructure:"include"`
	// StartAt is where the reading of files begins that exist when the Collector starts. Files that
	// appear later are read from their beginning.
	StartAt StartAt `mapstructure:"start_at" enum:"end,beginning"`
	// MaxFiles is the maximum number of files that are open at a time.
	MaxFiles int `mapstructure:"max_files"`
	// RAS is a file with the answer of NCCL's RAS subsystem in JSON, which states the devices of ranks.
	RAS string `mapstructure:"ras"`
	// prevent unkeyed literal initialization
	_ struct{}
}

// FlightRecorderConfig selects the dumps of PyTorch's flight recorder.
type FlightRecorderConfig struct {
	// Include are patterns of paths, with ** for any number of folders; at least one. Dumps in one
	// folder are of one job.
	Include []string `mapstructure:"include"`
	// Settle is how long the dumps of a folder must be unchanged before they are compared, because
	// ranks write them one after another.
	Settle time.Duration `mapstructure:"settle"`
	// MaxAge is the age of dumps from which on they are ignored.
	MaxAge time.Duration `mapstructure:"max_age"`
	// prevent unkeyed literal initialization
	_ struct{}
}

var (
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

// Unmarshal reads the configuration and suggests names for unknown keys.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate reports every problem.
func (c *Config) Validate() error {
	var bad configvalidate.List
	patterns := func(key string, list []string) {
		bad.If(len(list) == 0, "`%s` must name at least one pattern, found none", key)
		for _, p := range list {
			bad.If(p == "" || !doublestar.ValidatePathPattern(p), "`%s` must contain valid patterns, found %q", key, p)
		}
	}
	i, f := c.Inspector.Get(), c.FlightRecorder.Get()
	bad.If(i == nil && f == nil, "`inspector` or `flight_recorder` must be set")
	bad.If(c.Interval <= 0, "`interval` must be positive, found %s", c.Interval)
	bad.If(c.CardinalityLimit < 2, "`cardinality_limit` must be at least 2, found %d", c.CardinalityLimit)
	if i != nil {
		patterns("inspector::include", i.Include)
		bad.If(i.StartAt != StartAtEnd && i.StartAt != StartAtBeginning,
			"`inspector::start_at` must be end or beginning, found %q", i.StartAt)
		bad.If(i.MaxFiles < 1, "`inspector::max_files` must be positive, found %d", i.MaxFiles)
	}
	if f != nil {
		patterns("flight_recorder::include", f.Include)
		bad.If(f.Settle < 0, "`flight_recorder::settle` must be non-negative, found %s", f.Settle)
		bad.If(f.MaxAge <= 0, "`flight_recorder::max_age` must be positive, found %s", f.MaxAge)
	}
	return bad.Err()
}

func createDefaultConfig() component.Config {
	return &Config{
		Inspector:      configoptional.Default(InspectorConfig{StartAt: StartAtEnd, MaxFiles: 1000}),
		FlightRecorder: configoptional.Default(FlightRecorderConfig{Settle: 15 * time.Second, MaxAge: 10 * time.Minute}),
		Interval:       10 * time.Second, CardinalityLimit: 10_000,
	}
}
