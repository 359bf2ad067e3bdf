// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Config is the configuration of the gpu_samples extension: limits of the rings, and servers to
// read.
type Config struct {
	// MaxAge is how long a sample is kept, at least 1s. It should exceed the longest span plus
	// gpu_join's max_wait.
	MaxAge time.Duration `mapstructure:"max_age"`
	// MaxBytes is the maximum memory of all rings together, in bytes, at least 1 MiB; at the limit
	// the oldest samples are dropped early.
	MaxBytes int64 `mapstructure:"max_bytes"`
	// MaxDevices is the maximum number of GPUs and MIG instances.
	MaxDevices int `mapstructure:"max_devices"`
	// Servers are inference servers whose number of running requests is read, so that a request is
	// not charged for requests that end without a span. Default none.
	Servers []ServerConfig `mapstructure:"servers"`
}

func (c *Config) bounds() devicesamples.Config {
	return devicesamples.Config{MaxAge: c.MaxAge, MaxBytes: c.MaxBytes, MaxDevices: c.MaxDevices}
}

const (
	minBytes    = 1 << 20
	minInterval = 100 * time.Millisecond
)

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.MaxAge < time.Second, "`max_age` must be at least 1s, found %s", c.MaxAge)
	bad.If(c.MaxBytes < minBytes, "`max_bytes` must be at least %d, found %d", minBytes, c.MaxBytes)
	configvalidate.Positive(&bad, "max_devices", c.MaxDevices)
	for i := range c.Servers {
		s := &c.Servers[i]
		u, err := url.Parse(s.Endpoint)
		bad.If(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https",
			"`servers::%d::endpoint` must be a URL such as http://127.0.0.1:8000/metrics, found %q", i, s.Endpoint)
		ns, pod, found := strings.Cut(s.Pod, "/")
		bad.If(s.Pod != "" && (!found || ns == "" || pod == ""),
			"`servers::%d::pod` must be namespace/name, found %q", i, s.Pod)
		bad.If(s.Interval < 0 || s.Interval > 0 && s.Interval < minInterval,
			"`servers::%d::interval` must be at least %s, found %s", i, minInterval, s.Interval)
	}
	return bad.Err()
}
