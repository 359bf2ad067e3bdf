// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostcheckextension

import (
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/localhost"
)

// Config is the configuration of the host_check extension.
type Config struct {
	// Hosts are host names, without ports, that requests to a loopback address may have in their
	// Host header in addition to localhost and IP addresses, as behind a proxy that forwards its
	// own name. Default none.
	Hosts []string `mapstructure:"hosts"`
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error { return localhost.Validate("hosts", c.Hosts) }
