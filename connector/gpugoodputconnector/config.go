// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpugoodputconnector

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/goodput"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Config configures the connector.
type Config struct {
	// Samples is the gpu_samples extension with the utilization of the devices, which fills what
	// spans leave open and is the account of jobs without spans. A rank whose device stays busy
	// after its last span hangs. The extension also keeps the newest span of each rank, with which
	// the receiver collectives links a hang. Default none.
	Samples *component.ID `mapstructure:"samples"`
	// FlushInterval is the interval between two outputs.
	FlushInterval time.Duration `mapstructure:"flush_interval"`
	// Expiry is how long a job is kept after its last span or use of a device. A restart after that
	// is another job.
	Expiry time.Duration `mapstructure:"expiry"`
	// MaxJobs is the maximum number of jobs.
	MaxJobs int `mapstructure:"max_jobs"`
	// Spans state the buckets of further spans; they are tried before the built-in ones.
	Spans []SpanConfig `mapstructure:"spans"`
	// prevent unkeyed literal initialization
	_ struct{}
}

// SpanConfig states the bucket of spans.
type SpanConfig struct {
	// Name is a pattern (`*`, `?`, `[…]`) for the span's name or its gpu.operation.name.
	Name string `mapstructure:"name"`
	// Bucket is the bucket of the span's time.
	Bucket string `mapstructure:"bucket" enum:"startup,productive,data,evaluation,checkpoint,compilation"`
	_      struct{}
}

var (
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

// Unmarshal reads the configuration and suggests names for unknown keys.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// settable are the buckets of spans; the others follow from what is missing.
var settable = []goodput.Bucket{
	goodput.Startup, goodput.Productive, goodput.Data, goodput.Evaluation, goodput.Checkpoint, goodput.Compilation,
}

// Validate reports every problem.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.FlushInterval <= 0, "`flush_interval` must be positive, found %s", c.FlushInterval)
	bad.If(c.Expiry <= 0, "`expiry` must be positive, found %s", c.Expiry)
	bad.If(c.MaxJobs < 1, "`max_jobs` must be positive, found %d", c.MaxJobs)
	var names []string
	for _, b := range settable {
		names = append(names, goodput.Names[b])
	}
	for i := range c.Spans {
		key, s := fmt.Sprintf("spans::%d", i), &c.Spans[i]
		bad.If(s.Name == "" || spanfacts.CheckPattern(s.Name) != nil, "`%s::name` must be a pattern, found %q", key, s.Name)
		bad.If(!slices.Contains(names, s.Bucket), "`%s::bucket` must be one of %s, found %q", key,
			strings.Join(names, ", "), s.Bucket)
	}
	return bad.Err()
}

func createDefaultConfig() component.Config {
	return &Config{FlushInterval: 15 * time.Second, Expiry: 24 * time.Hour, MaxJobs: 100}
}

// builtin are the buckets of spans by their names: of otelgpu and trainers' callbacks, and of NeMo
// Lens, whose other names gpu_derive maps to these.
var builtin = []SpanConfig{
	{Name: "startup", Bucket: "startup"},
	{Name: "initialization", Bucket: "startup"},
	{Name: "checkpoint*", Bucket: "checkpoint"},
	{Name: "save_checkpoint", Bucket: "checkpoint"},
	{Name: "load_checkpoint", Bucket: "checkpoint"},
	{Name: "evaluate", Bucket: "evaluation"},
	{Name: "evaluation", Bucket: "evaluation"},
	{Name: "validation", Bucket: "evaluation"},
	{Name: "compile", Bucket: "compilation"},
	{Name: "compilation", Bucket: "compilation"},
}
