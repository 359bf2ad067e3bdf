// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/gputrace/follow"
)

// Config of the receiver.
type Config struct {
	// Files says which files are read and when.
	Files follow.Config `mapstructure:",squash"`

	// Detail is how much of a file becomes spans: auto (default), steps, annotations, operators, kernels.
	Detail Detail `mapstructure:"detail"`
	// MaxSpans per trace. 0 (default): 2,000, but no limit for operators and kernels. Negative: none.
	MaxSpans int `mapstructure:"max_spans"`
	// MaxBytes of OTLP per trace. 0 (default): 2,000,000, but no limit for operators and kernels. Negative: none.
	MaxBytes int `mapstructure:"max_bytes"`
	// BatchSpans is the most spans of one batch (default 1000).
	BatchSpans int `mapstructure:"batch_spans"`
	// MemoryMiB is the memory for events of the file that is read, before they go to a temporary file (default 64).
	MemoryMiB int `mapstructure:"memory_limit_mib"`
	// TempDir holds that file (default: that of the operating system).
	TempDir string `mapstructure:"temp_dir"`
	// ServiceName is service.name where the file does not say (default pytorch).
	ServiceName string `mapstructure:"service_name"`
	// JobID is gpu.job.id where the file does not say.
	JobID string `mapstructure:"job_id"`
	// Resource are further resource attributes; they win over those of the file.
	Resource map[string]string `mapstructure:"resource"`
	// Shapes writes gpu.operation.shapes on operators (default false).
	Shapes bool `mapstructure:"shapes"`
}

var _ confmap.Validator = (*Config)(nil)

func createDefaultConfig() component.Config {
	return &Config{Files: follow.NewDefaultConfig(), BatchSpans: 1000, MemoryMiB: 64, ServiceName: defaultService}
}

// Validate reports every problem but those of Files, which is asked by itself.
func (c *Config) Validate() error {
	var errs []error
	if c.BatchSpans <= 0 {
		errs = append(errs, fmt.Errorf("`batch_spans` must be positive, found %d", c.BatchSpans))
	}
	if c.MemoryMiB < 1 || c.MemoryMiB > 2047 {
		errs = append(errs, fmt.Errorf("`memory_limit_mib` must be from 1 to 2047, found %d", c.MemoryMiB))
	}
	if c.MaxSpans > 0 && c.MaxSpans < minSpans {
		errs = append(errs, fmt.Errorf("`max_spans` must be at least %d, or 0 for the default, or negative for none, found %d", minSpans, c.MaxSpans))
	}
	if c.MaxBytes > 0 && c.MaxBytes < minBytes {
		errs = append(errs, fmt.Errorf("`max_bytes` must be at least %d, or 0 for the default, or negative for none, found %d", minBytes, c.MaxBytes))
	}
	if c.ServiceName == "" {
		errs = append(errs, errors.New("`service_name` must not be empty"))
	}
	return errors.Join(errs...)
}

// The least limits: a trace always holds its window, its devices and some steps.
const (
	minSpans = 100
	minBytes = 200_000
)

// Options are what ReadFile takes for this configuration.
func (c *Config) Options() Options {
	return Options{
		Detail: c.Detail, MaxSpans: c.MaxSpans, MaxBytes: c.MaxBytes, BatchSpans: c.BatchSpans, MemoryLimit: c.MemoryMiB << 20,
		TempDir: c.TempDir, ServiceName: c.ServiceName, JobID: c.JobID, Resource: c.Resource, Shapes: c.Shapes,
	}
}
