// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
)

// Config is the configuration of the gpu_metrics connector. Durations, limits and sizes must be
// positive unless 0 is mentioned.
type Config struct {
	// FlushInterval is the time between two outputs.
	FlushInterval time.Duration `mapstructure:"flush_interval"`
	// Temporality is `cumulative` (default) or `delta`.
	Temporality string `mapstructure:"temporality" enum:"cumulative,delta"`
	// Histogram selects the type of histograms. Default: explicit bounds.
	Histogram HistogramConfig `mapstructure:"histogram"`
	// MaxExemplars is the maximum number of exemplars of a histogram point. 0: none.
	MaxExemplars int `mapstructure:"max_exemplars"`
	// Dimensions are additional attributes of the span, otherwise of its resource, that become
	// attributes of all gpu.operation metrics. Default none.
	Dimensions []string `mapstructure:"dimensions"`
	// ResourceAttributes are the attributes to keep on the resource of the metrics. Default, and
	// empty: all.
	ResourceAttributes []string `mapstructure:"resource_attributes"`
	// CardinalityLimit limits the series of one metric and resource; further series are counted in
	// one series with otel.metric.overflow.
	CardinalityLimit int `mapstructure:"cardinality_limit"`
	// MaxSeries limits the series of all resources together, about 1 kB each; further series
	// overflow as above.
	MaxSeries int `mapstructure:"max_series"`
	// MaxResources limits the resources; spans of further ones are counted under one empty
	// resource.
	MaxResources int `mapstructure:"max_resources"`
	// MaxSpans is the number of GPU spans to remember, 16 to 32 bytes each, so that repeated spans
	// count once. 0: none.
	MaxSpans int `mapstructure:"max_spans"`
	// Expiry is how long a series must have had no new spans before it may be evicted for a new one
	// at a limit. 0: never.
	Expiry time.Duration `mapstructure:"expiry"`
	// InstanceID is collector.instance.id on every point, so that no two connectors write one
	// series. Default: the name of the host (of the pod, in Kubernetes), followed by a slash and
	// the name of this connector if it has one. Two Collectors on one host need different ones.
	InstanceID string `mapstructure:"instance_id"`
	// Operations enables the gpu.operation metrics. On by default.
	Operations configoptional.Optional[OperationsConfig] `mapstructure:"operations"`
	// Steps enables the gpu.step metrics. On by default.
	Steps configoptional.Optional[StepsConfig] `mapstructure:"steps"`
	// Activity enables the analysis of each device's activity, from sources that record every
	// kernel. On by default.
	Activity configoptional.Optional[ActivityConfig] `mapstructure:"activity"`
	// Stragglers enables the comparison of the ranks of a job. On by default.
	Stragglers configoptional.Optional[StragglerConfig] `mapstructure:"stragglers"`
}

// Values of Config.Temporality.
const (
	TemporalityCumulative = "cumulative" // since the start of the series
	TemporalityDelta      = "delta"      // since the previous output
)

// HistogramConfig selects one of two forms of histograms.
type HistogramConfig struct {
	// Explicit are the inclusive upper bounds of the buckets, in increasing order. Default: 1 and 3
	// of each decade from 1 µs to 30 s.
	Explicit []time.Duration `mapstructure:"explicit"`
	// Exponential selects base-2 exponential histograms instead. Off by default.
	Exponential configoptional.Optional[ExponentialConfig] `mapstructure:"exponential"`
	_           struct{}
}

// ExponentialConfig limits exponential histograms.
type ExponentialConfig struct {
	// MaxSize is the maximum number of buckets, at least 2.
	MaxSize int `mapstructure:"max_size"`
	_       struct{}
}

// OperationsConfig has no keys except `enabled`.
type OperationsConfig struct{ _ struct{} }

// StepsConfig has no keys except `enabled`.
type StepsConfig struct{ _ struct{} }

// ActivityConfig limits the analysis of devices.
type ActivityConfig struct {
	// Settle is how long the analysis waits for late activities, in the device's own time.
	// Activities that ended before are counted as late.
	Settle time.Duration `mapstructure:"settle"`
	// MaxGap is the longest time without activity that counts as idle; a longer one is a pause of
	// the profiler and counts for no state.
	MaxGap time.Duration `mapstructure:"max_gap"`
	// MaxActivities limits the activities that wait, over all devices; at the limit the oldest are
	// analyzed early.
	MaxActivities int `mapstructure:"max_activities"`
	_             struct{}
}

// StragglerConfig limits the comparison of ranks.
type StragglerConfig struct {
	// MaxWait is how long a step waits for missing ranks.
	MaxWait time.Duration `mapstructure:"max_wait"`
	// MinRanks is the minimum number of ranks of a comparison, at least 2.
	MinRanks int `mapstructure:"min_ranks"`
	// MaxWaiting limits the steps that wait, counted for each rank, over all jobs; about 500 bytes
	// each.
	MaxWaiting int     `mapstructure:"max_waiting"`
	everySteps float64 // see [straggler.Limits]; tests name ranks sooner
	_          struct{}
}

// defaultBounds returns 1 and 3 of each decade from 1 µs to 30 s. Each bound is a series for each
// operation and device in Prometheus; use exponential histograms for a finer resolution.
func defaultBounds() []time.Duration {
	var out []time.Duration
	for d := time.Microsecond; d <= 10*time.Second; d *= 10 {
		out = append(out, d, 3*d)
	}
	return out
}

func createDefaultConfig() component.Config {
	return &Config{
		FlushInterval: 15 * time.Second, Temporality: TemporalityCumulative,
		Histogram: HistogramConfig{
			Explicit:    defaultBounds(),
			Exponential: configoptional.Default(ExponentialConfig{MaxSize: 160}),
		},
		MaxExemplars: 5, CardinalityLimit: 2000, MaxSeries: 100_000, MaxResources: 1000, MaxSpans: 200_000,
		Expiry:     5 * time.Minute,
		Operations: configoptional.Some(OperationsConfig{}), Steps: configoptional.Some(StepsConfig{}),
		Activity: configoptional.Some(ActivityConfig{
			Settle: 10 * time.Second, MaxGap: time.Second,
			MaxActivities: 200_000,
		}),
		Stragglers: configoptional.Some(StragglerConfig{MaxWait: 30 * time.Second, MinRanks: 2, MaxWaiting: 100_000}),
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	const waiting = "`stragglers::max_waiting`, which counts the steps of all ranks and jobs together"
	return configvalidate.Read(conf, c,
		configvalidate.Removed{Key: "stragglers::max_steps", Use: waiting},
		configvalidate.Removed{Key: "stragglers::max_ranks", Use: waiting},
		configvalidate.Removed{Key: "regressions", Use: "the rules in config/alerts/versions.yaml"})
}

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	configvalidate.Positive(&bad, "flush_interval", c.FlushInterval)
	bad.If(c.Temporality != TemporalityCumulative && c.Temporality != TemporalityDelta,
		"`temporality` must be cumulative or delta, found %q", c.Temporality)
	c.Histogram.validate(&bad)
	bad.If(c.MaxExemplars < 0, "`max_exemplars` must not be negative, found %d", c.MaxExemplars)
	bad.Names("dimensions", c.Dimensions)
	bad.Names("resource_attributes", c.ResourceAttributes)
	configvalidate.Positive(&bad, "cardinality_limit", c.CardinalityLimit)
	configvalidate.Positive(&bad, "max_series", c.MaxSeries)
	configvalidate.Positive(&bad, "max_resources", c.MaxResources)
	bad.If(c.MaxSpans < 0, "`max_spans` must not be negative, found %d", c.MaxSpans)
	bad.If(c.Expiry < 0, "`expiry` must not be negative, found %s", c.Expiry)
	if a := c.Activity.Get(); a != nil {
		configvalidate.Positive(&bad, "activity::settle", a.Settle)
		configvalidate.Positive(&bad, "activity::max_gap", a.MaxGap)
		configvalidate.Positive(&bad, "activity::max_activities", a.MaxActivities)
	}
	if s := c.Stragglers.Get(); s != nil {
		configvalidate.Positive(&bad, "stragglers::max_wait", s.MaxWait)
		configvalidate.Positive(&bad, "stragglers::max_waiting", s.MaxWaiting)
		bad.If(s.MinRanks < 2, "`stragglers::min_ranks` must be at least 2, found %d", s.MinRanks)
	}
	return bad.Err()
}

func (h *HistogramConfig) validate(bad *configvalidate.List) {
	if e := h.Exponential.Get(); e != nil {
		bad.If(e.MaxSize < 2, "`histogram::exponential::max_size` must be at least 2, found %d", e.MaxSize)
		return
	}
	bad.If(len(h.Explicit) == 0, "`histogram::explicit` must have at least one bound")
	for i, b := range h.Explicit {
		bad.If(b <= 0 || i > 0 && b <= h.Explicit[i-1],
			"`histogram::explicit::%d` must be above 0 and above the bound before it, found %s", i, b)
	}
}
