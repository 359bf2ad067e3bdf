// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
)

// Config is the configuration of the xplane receiver.
type Config struct {
	// Files selects the files to read and when to read them.
	Files follow.Config `mapstructure:",squash"`
	// Spans configures the conversion to spans.
	Spans profiletrace.Options `mapstructure:",squash"`
}

var (
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.Join(c.Files.Check())
	bad.Join(c.Spans.Check())
	return bad.Err()
}

func createDefaultConfig() component.Config {
	return &Config{Files: follow.NewDefaultConfig(), Spans: profiletrace.DefaultOptions(defaultService)}
}
