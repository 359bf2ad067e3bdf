// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
)

// Config of the receiver.
type Config struct {
	// Files selects the files to read, and when.
	Files follow.Config `mapstructure:",squash"`
	// Spans controls how they become spans.
	Spans profiletrace.Options `mapstructure:",squash"`
}

var (
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

// Unmarshal rejects numbers that the options do not accept.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate reports every problem.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.Join(c.Files.Check())
	bad.Join(c.Spans.Check())
	return bad.Err()
}

func createDefaultConfig() component.Config {
	return &Config{Files: follow.NewDefaultConfig(), Spans: profiletrace.DefaultOptions(defaultService)}
}
