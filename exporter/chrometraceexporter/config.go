// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
)

// Config of the exporter. README.md explains each key.
type Config struct {
	Path        string                            `mapstructure:"path"`
	Compression chrometrace.Compression           `mapstructure:"compression"`
	Existing    chrometrace.Existing              `mapstructure:"existing"`
	Rotation    configoptional.Optional[Rotation] `mapstructure:"rotation"`
	PerTrace    configoptional.Optional[PerTrace] `mapstructure:"per_trace"`
	Counters    []string                          `mapstructure:"counters"`

	Timeout exporterhelper.TimeoutConfig                             `mapstructure:",squash"`
	Queue   configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	Retry   configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

// Rotation says when a file is complete and how many are kept.
type Rotation struct {
	MaxMegabytes int64         `mapstructure:"max_megabytes"` // of 10^6 bytes
	MaxAge       time.Duration `mapstructure:"max_age"`
	MaxFiles     int           `mapstructure:"max_files"`
}

// PerTrace makes one file for each trace.
type PerTrace struct {
	Idle     time.Duration `mapstructure:"idle"`
	MaxOpen  int           `mapstructure:"max_open"`
	MaxFiles int           `mapstructure:"max_files"`
}

// defaultCounters are the gauges that explain a span at a glance. More would push the spans off the screen.
var defaultCounters = []string{
	"hw.power", "gpu.sm.utilization", "gpu.dram.utilization", "gpu.tensor.utilization", "gpu.clock.frequency",
}

// NewDefaultConfig is the configuration of an exporter without any keys. Path has to be set.
func NewDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.Enabled = false // a file that cannot be written seldom can be a moment later, and without a queue retrying blocks
	return &Config{
		Existing: chrometrace.Number,
		Rotation: configoptional.Default(Rotation{MaxMegabytes: 200, MaxFiles: 100}),
		PerTrace: configoptional.Default(PerTrace{Idle: 30 * time.Second, MaxOpen: 64, MaxFiles: 1000}),
		Counters: defaultCounters,
		Timeout:  exporterhelper.NewDefaultTimeoutConfig(),
		Queue:    configoptional.Default(exporterhelper.NewDefaultQueueConfig()),
		Retry:    retry,
	}
}

// Validate reports every mistake at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Path == "" {
		bad("`path` must name a file, such as traces/trace.json")
	}
	switch c.Compression {
	case chrometrace.None, chrometrace.Gzip, chrometrace.Zstd:
	default:
		bad("`compression` must be gzip or zstd, or absent, found %q", string(c.Compression))
	}
	switch c.Existing {
	case chrometrace.Number, chrometrace.Replace, chrometrace.Refuse:
	default:
		bad("`existing` must be number, replace or refuse, found %q", string(c.Existing))
	}
	if c.Rotation.HasValue() && c.PerTrace.HasValue() {
		bad("`rotation` and `per_trace` exclude each other")
	}
	return errors.Join(errs...)
}

// Validate implements confmap.Validator.
func (r *Rotation) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.MaxMegabytes < 0 {
		bad("`max_megabytes` must be non-negative, found %d", r.MaxMegabytes)
	}
	if r.MaxAge < 0 {
		bad("`max_age` must be non-negative, found %s", r.MaxAge)
	}
	if r.MaxFiles < 0 {
		bad("`max_files` must be non-negative, found %d", r.MaxFiles)
	}
	if r.MaxMegabytes == 0 && r.MaxAge == 0 {
		bad("`max_megabytes` or `max_age` must be positive, or nothing rotates")
	}
	return errors.Join(errs...)
}

// Validate implements confmap.Validator.
func (p *PerTrace) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p.Idle <= 0 {
		bad("`idle` must be positive, found %s", p.Idle)
	}
	if p.MaxOpen <= 0 {
		bad("`max_open` must be positive, found %d", p.MaxOpen)
	}
	if p.MaxFiles < 0 {
		bad("`max_files` must be non-negative, found %d", p.MaxFiles)
	}
	return errors.Join(errs...)
}

func (c *Config) files() chrometrace.Files {
	f := chrometrace.Files{Path: c.Path, Compression: c.Compression, Existing: c.Existing}
	if r := c.Rotation.Get(); r != nil {
		f.MaxBytes, f.MaxAge, f.MaxFiles = r.MaxMegabytes*1e6, r.MaxAge, r.MaxFiles
	}
	if p := c.PerTrace.Get(); p != nil {
		f.PerTrace, f.MaxOpen, f.MaxFiles = p.Idle, p.MaxOpen, p.MaxFiles
	}
	return f
}
