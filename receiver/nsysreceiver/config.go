// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/internal/gputrace/follow"
)

// Config of the receiver.
type Config struct {
	// Files says which files are read and when.
	Files follow.Config `mapstructure:",squash"`
	// Spans says what becomes of them.
	Spans gputrace.Config `mapstructure:",squash"`
}

// Both parts check themselves.
var (
	_ confmap.Validator = (*follow.Config)(nil)
	_ confmap.Validator = (*gputrace.Config)(nil)
)

func createDefaultConfig() component.Config {
	return &Config{Files: follow.NewDefaultConfig(), Spans: gputrace.NewDefaultConfig(defaultService)}
}

// Options are what ReadFile takes for this configuration.
func (c *Config) Options() Options {
	s := &c.Spans
	return Options{
		Detail: s.Detail, Extent: s.Extent, MaxSpans: s.MaxSpans, MaxBytes: s.MaxBytes, BatchSpans: s.BatchSpans, MemoryLimit: s.MemoryMiB << 20,
		TempDir: s.TempDir, ServiceName: s.ServiceName, JobID: s.JobID, Model: s.Device, Resource: s.Resource,
	}
}
