// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostcheckextension

import (
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/localhost"
)

// Config names the hosts that requests may be for.
type Config struct {
	// Hosts are host names, without ports, that requests to a loopback address may have in their Host header besides
	// localhost and addresses, as behind a proxy that passes its own name on. Default none.
	Hosts []string `mapstructure:"hosts"`
}

// Unmarshal rejects values that the options do not accept.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate reports every problem at once.
func (c *Config) Validate() error { return localhost.Validate("hosts", c.Hosts) }
