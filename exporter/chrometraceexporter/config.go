// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

// Config is the configuration of the chrome_trace exporter.
type Config struct {
	// Path is the path of the file, required. Folders are created; the extension of the compression
	// is appended if missing.
	Path string `mapstructure:"path"`
	// Compression is gzip or zstd. Default none.
	Compression chrometrace.Compression `mapstructure:"compression"`
	// Existing is what happens if the file exists: number (default) or replace.
	Existing chrometrace.Existing `mapstructure:"existing" enum:"number,replace"`
	// Rotation starts a new file by size or time. Default off; the empty key turns it on.
	Rotation configoptional.Optional[Rotation] `mapstructure:"rotation"`
	// Counters are the gauges and non-monotonic sums that are drawn. Default hw.power,
	// gpu.sm.utilization, gpu.dram.utilization, gpu.tensor.utilization, gpu.clock.frequency.
	Counters []string `mapstructure:"counters"`
	// Samples is the gpu_samples extension from whose rings counters are drawn, sample by sample,
	// while spans of the device arrive. Default none: counters are drawn from the metrics that the
	// exporter receives.
	Samples *component.ID `mapstructure:"samples"`

	// Timeout limits the time of one request, as in every exporter; a write in progress is not
	// interrupted.
	Timeout exporterhelper.TimeoutConfig `mapstructure:",squash"`
	// Queue configures the queue before the files, as in every exporter. Default off.
	Queue configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// Retry configures retries of failed writes, as in every exporter. Default off: without a queue
	// it blocks the pipeline.
	Retry configretry.BackOffConfig `mapstructure:"retry_on_failure"`
}

// Rotation sets when a file is complete and how many are kept.
type Rotation struct {
	// MaxMegabytes completes a file at this size on disk, in 10^6 bytes. 0: no limit. One of
	// MaxMegabytes and MaxAge must be set.
	MaxMegabytes int64 `mapstructure:"max_megabytes"`
	// MaxAge completes a file this long after it was created. Default 0: no limit.
	MaxAge time.Duration `mapstructure:"max_age"`
	// MaxFiles is the number of complete files to keep; the oldest are removed. 0: all.
	MaxFiles int `mapstructure:"max_files"`
}

// defaultCounters are the gauges that explain a span at a glance. More would push the spans off the
// screen.
var defaultCounters = []string{
	"hw.power", "gpu.sm.utilization", "gpu.dram.utilization", "gpu.tensor.utilization", "gpu.clock.frequency",
}

// createDefaultConfig returns the configuration of an exporter without any keys. Path has to be
// set.
func createDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	// writing rarely succeeds shortly after a failure, and without a queue retries block
	retry.Enabled = false
	return &Config{
		Existing: chrometrace.Number,
		Rotation: configoptional.Default(Rotation{MaxMegabytes: 200, MaxFiles: 100}),
		Counters: defaultCounters,
		Timeout:  exporterhelper.NewDefaultTimeoutConfig(),
		Queue:    configoptional.Default(exporterhelper.NewDefaultQueueConfig()),
		Retry:    retry,
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	return configvalidate.Read(conf, c, configvalidate.Removed{
		Key: "per_trace", Use: "`rotation`, or a query of the store of traces by trace ID",
	})
}

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Path == "", "`path` must name a file, such as traces/trace.json")
	switch c.Compression {
	case chrometrace.None, chrometrace.Gzip, chrometrace.Zstd:
	default:
		bad.Add("`compression` must be gzip or zstd, or absent, found %q", string(c.Compression))
	}
	switch c.Existing {
	case chrometrace.Number, chrometrace.Replace:
	default:
		bad.Add("`existing` must be number or replace, found %q", string(c.Existing))
	}
	bad.Names("counters", c.Counters)
	return bad.Err()
}

// Validate returns an error that lists every invalid value by its key.
func (r *Rotation) Validate() error {
	var bad configvalidate.List
	bad.If(r.MaxMegabytes < 0 || r.MaxMegabytes > math.MaxInt64/1_000_000,
		"`max_megabytes` must be non-negative and a size that a file can have, found %d", r.MaxMegabytes)
	bad.If(r.MaxAge < 0, "`max_age` must be non-negative, found %s", r.MaxAge)
	bad.If(r.MaxFiles < 0, "`max_files` must be non-negative, found %d", r.MaxFiles)
	bad.If(r.MaxMegabytes == 0 && r.MaxAge == 0, "`max_megabytes` or `max_age` must be positive, or nothing rotates")
	return bad.Err()
}

func (c *Config) files() chrometrace.Files {
	f := chrometrace.Files{Path: c.Path, Compression: c.Compression, Existing: c.Existing}
	if r := c.Rotation.Get(); r != nil {
		f.MaxBytes, f.MaxAge, f.MaxFiles = r.MaxMegabytes*1e6, r.MaxAge, r.MaxFiles
	}
	return f
}
