// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"net/url"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/localhost"
)

// Config is the configuration of the gpu_page exporter.
type Config struct {
	// ServerConfig is where the page is served: endpoint (default 127.0.0.1:9465), tls, auth and
	// the rest of the Collector's HTTP servers.
	confighttp.ServerConfig `mapstructure:",squash"`
	// TraceURL is the target of a click on a span, a template with {traceID} such as
	// http://localhost:16686/trace/{traceID} (default none: no links).
	TraceURL string `mapstructure:"trace_url"`
	// Hosts are further host names that a page on a loopback address accepts, as needed behind a
	// proxy that forwards its own name (default none: localhost and IP addresses).
	Hosts []string `mapstructure:"hosts"`
}

const defaultEndpoint = "127.0.0.1:9465"

var _ confmap.Validator = (*Config)(nil)

func createDefaultConfig() component.Config {
	s := confighttp.NewDefaultServerConfig()
	s.NetAddr.Endpoint = defaultEndpoint
	s.WriteTimeout = 0 // events are written while the page is open; each write has its own timeout
	return &Config{ServerConfig: s}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.NetAddr.Endpoint == "", "`endpoint` must not be empty")
	if c.TraceURL != "" {
		u, err := url.Parse(strings.ReplaceAll(c.TraceURL, "{traceID}", "0"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(c.TraceURL, "{traceID}") {
			bad.Add("`trace_url` must be a http or https address with {traceID}, found %q", c.TraceURL)
		}
	}
	bad.Join(localhost.Validate("hosts", c.Hosts))
	return bad.Err()
}
