// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
)

// Config is the configuration of the gpu_requests connector. Durations and limits must be positive.
type Config struct {
	// Settle is how long a usage record waits for further batches after the request's own span has
	// arrived. Default 15s: gpu_join delays GPU spans by up to 10 s, SDKs export every 5 s.
	Settle time.Duration `mapstructure:"settle"`
	// Idle is how long a usage record without the request's own span waits after the last batch.
	Idle time.Duration `mapstructure:"idle"`
	// MaxRequests is the maximum number of open usage records, about 1 kB each; at the limit the
	// oldest is closed early.
	MaxRequests int `mapstructure:"max_requests"`
	// MaxSpans is the maximum number of spans that are kept to find when a request started and what
	// belongs to it, about 110 bytes each; at the limit the oldest are evicted.
	MaxSpans int `mapstructure:"max_spans"`
	// QueueSpan writes a span `queue` from the start of the request to its first GPU work.
	QueueSpan bool `mapstructure:"queue_span"`
	// Dimensions are attributes to add to all metrics: of the request's span, otherwise of the nearest
	// span above it in its trace that has one, otherwise of any span of the trace if all state the same
	// value, such as a gateway's. Default none.
	Dimensions []string `mapstructure:"dimensions"`
	// FlushInterval is the time between two outputs of metrics.
	FlushInterval time.Duration `mapstructure:"flush_interval"`
	// Temporality is `cumulative` (default) or `delta`.
	Temporality string `mapstructure:"temporality" enum:"cumulative,delta"`
	// Histogram selects the type of histograms. Default: fixed bounds.
	Histogram HistogramConfig `mapstructure:"histogram"`
	// CardinalityLimit is the maximum number of series of one metric and resource; further ones are
	// counted in one series with otel.metric.overflow.
	CardinalityLimit int `mapstructure:"cardinality_limit"`
	// MaxResources is the maximum number of resources with metrics; at the limit the one that has
	// been inactive for longest is removed, and starts a new series when it returns.
	MaxResources int `mapstructure:"max_resources"`
	// InstanceID is collector.instance.id on every point, so that no two connectors write one
	// series. Default: the name of the host (of the pod, in Kubernetes), with the name of this
	// connector after a slash if it has one. Two Collectors on one host need different ones.
	InstanceID string `mapstructure:"instance_id"`
}

// HistogramConfig selects the type of histograms: fixed bounds, unless exponential is set.
type HistogramConfig struct {
	// Exponential selects base-2 exponential histograms. Off by default.
	Exponential configoptional.Optional[ExponentialConfig] `mapstructure:"exponential"`
	_           struct{}
}

// ExponentialConfig limits exponential histograms.
type ExponentialConfig struct {
	// MaxSize is the maximum number of buckets, at least 2.
	MaxSize int `mapstructure:"max_size"`
	_       struct{}
}

// Values of Config.Temporality.
const (
	TemporalityCumulative = "cumulative" // since the start of the series
	TemporalityDelta      = "delta"      // since the previous output
)

func createDefaultConfig() component.Config {
	return &Config{
		Settle: 15 * time.Second, Idle: 30 * time.Second, MaxRequests: 10_000, MaxSpans: 100_000, QueueSpan: true,
		FlushInterval: 15 * time.Second, Temporality: TemporalityCumulative,
		Histogram:        HistogramConfig{Exponential: configoptional.Default(ExponentialConfig{MaxSize: 160})},
		CardinalityLimit: 2000, MaxResources: 1000,
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	return configvalidate.Read(conf, c, configvalidate.Removed{Key: "exponential", Use: "`histogram::exponential`"})
}

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	configvalidate.Positive(&bad, "settle", c.Settle)
	configvalidate.Positive(&bad, "idle", c.Idle)
	configvalidate.Positive(&bad, "flush_interval", c.FlushInterval)
	configvalidate.Positive(&bad, "max_requests", c.MaxRequests)
	configvalidate.Positive(&bad, "max_spans", c.MaxSpans)
	configvalidate.Positive(&bad, "cardinality_limit", c.CardinalityLimit)
	configvalidate.Positive(&bad, "max_resources", c.MaxResources)
	bad.Names("dimensions", c.Dimensions)
	bad.If(c.Temporality != TemporalityCumulative && c.Temporality != TemporalityDelta,
		"`temporality` must be cumulative or delta, found %q", c.Temporality)
	if e := c.Histogram.Exponential.Get(); e != nil && e.MaxSize < 2 {
		bad.Add("`histogram::exponential::max_size` must be at least 2, found %d", e.MaxSize)
	}
	return bad.Err()
}
