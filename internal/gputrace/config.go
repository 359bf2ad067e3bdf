// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"errors"
	"fmt"
)

// Config is what the receivers of profiler files have in common: what becomes of a file.
type Config struct {
	// Detail is how much of a file becomes spans: auto (default), steps, annotations, operators, kernels.
	Detail Level `mapstructure:"detail"`
	// Extent is which activities the analysis of a window takes: all (default), steps, steps_but_last.
	Extent Extent `mapstructure:"extent"`
	// MaxSpans per trace. 0 (default): 2,000, but no limit for operators and kernels. Negative: none.
	MaxSpans int `mapstructure:"max_spans"`
	// MaxBytes of OTLP per trace. 0 (default): 2,000,000, but no limit for operators and kernels. Negative: none.
	MaxBytes int `mapstructure:"max_bytes"`
	// BatchSpans is the most spans of one batch (default 1000).
	BatchSpans int `mapstructure:"batch_spans"`
	// MemoryMiB is the memory for events of the file that is read, before they go to a temporary file (default 32).
	MemoryMiB int `mapstructure:"memory_limit_mib"`
	// TempDir holds that file (default: that of the operating system).
	TempDir string `mapstructure:"temp_dir"`
	// ServiceName is service.name where the file does not say (default: the receiver's).
	ServiceName string `mapstructure:"service_name"`
	// JobID is gpu.job.id where the file does not say (default none).
	JobID string `mapstructure:"job_id"`
	// Device is hw.model of devices that the file does not name, as the driver calls it (default none: no peak is known then).
	Device string `mapstructure:"device"`
	// Resource are further resource attributes; they win over those of the file (default none).
	Resource map[string]string `mapstructure:"resource"`
	// prevent unkeyed literal initialization
	_ struct{}
}

// NewDefaultConfig is for spans of a service that the file does not name.
func NewDefaultConfig(service string) Config {
	return Config{BatchSpans: defaultBatch, MemoryMiB: defaultMemory >> 20, ServiceName: service}
}

// The least limits: a trace always holds its window, its devices and some steps.
const (
	minSpans = 100
	minBytes = 200_000
)

// Validate reports every problem.
func (c *Config) Validate() error {
	var errs []error
	if c.BatchSpans <= 0 {
		errs = append(errs, fmt.Errorf("`batch_spans` must be positive, found %d", c.BatchSpans))
	}
	if c.MemoryMiB < 1 || c.MemoryMiB > 2047 {
		errs = append(errs, fmt.Errorf("`memory_limit_mib` must be from 1 to 2047, found %d", c.MemoryMiB))
	}
	least := func(key string, v, least int) {
		if v > 0 && v < least {
			errs = append(errs, fmt.Errorf("`%s` must be at least %d, or 0 for the default, or negative for none, found %d", key, least, v))
		}
	}
	least("max_spans", c.MaxSpans, minSpans)
	least("max_bytes", c.MaxBytes, minBytes)
	if c.ServiceName == "" {
		errs = append(errs, errors.New("`service_name` must not be empty"))
	}
	return errors.Join(errs...)
}
