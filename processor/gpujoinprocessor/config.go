// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"strconv"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Config is the configuration of the gpu_join processor.
type Config struct {
	// Samples names the gpu_samples extension with the device samples. Default none: spans pass
	// unchanged.
	Samples *component.ID `mapstructure:"samples"`
	// Settle is the delay after which the energy of a moment is attributed, so that spans of other
	// processes can arrive first. It should exceed the export interval of the SDKs (5 s by
	// default).
	Settle time.Duration `mapstructure:"settle"`
	// MaxWait is the maximum time for which a batch waits for samples and for Settle; at least
	// Settle.
	MaxWait time.Duration `mapstructure:"max_wait"`
	// Queue configures the queue of waiting batches.
	Queue QueueConfig `mapstructure:"queue"`
	// RetryOnFailure configures retries when the next component rejects a batch. The first retries
	// follow faster than InitialInterval, so that the queue drains as fast as the next component
	// accepts. Default: an interval of 1s, without end, because the queue is bounded and rejects
	// new batches when it is full.
	RetryOnFailure configretry.BackOffConfig `mapstructure:"retry_on_failure"`
	// ShutdownTimeout is the maximum time for which a shutdown waits until the next component has
	// accepted the waiting batches; positive.
	ShutdownTimeout time.Duration `mapstructure:"shutdown_timeout"`
	// MaxSpans is the maximum number of spans that energy attribution keeps, waiting ones and
	// settled ones; positive.
	MaxSpans int `mapstructure:"max_spans"`
	// MaxSpanSize is the maximum size of a span with its resource and scope in bytes of OTLP
	// protobuf, positive; larger ones are dropped and counted. Set it below the `max_size` in bytes
	// of exporters' batches.
	MaxSpanSize int `mapstructure:"max_span_size"`
	// Shift is the offset of the samples' clock from the spans' clock, at most 1h in either
	// direction: a sample of time t describes what spans did at t − shift. Positive for meters that
	// lag and for services whose clock is behind, negative for services whose clock is ahead.
	Shift time.Duration `mapstructure:"shift"`
	// Ordinals maps gpu.device.ordinal to hw.id, for spans without any other identity. Default
	// none.
	Ordinals map[string]string `mapstructure:"ordinals"`
	// EnergyOnMIG gives spans on MIG instances their share of the physical GPU's energy.
	EnergyOnMIG bool `mapstructure:"energy_on_mig"`
	// Events adds a span event for each XID, memory error and throttle change, in addition to the
	// attributes.
	Events bool `mapstructure:"events"`
	// Attributes is how much detail is written on a span: lean for the main results, with quality
	// only if it is unusual and means of five significant digits, or full for all known values.
	// Default lean.
	Attributes spanfacts.Level `mapstructure:"attributes" enum:"lean,full"`
}

// QueueConfig limits the queue of waiting batches.
type QueueConfig struct {
	// Size is the maximum size of the queue in bytes of OTLP protobuf, positive; a batch that does
	// not fit is rejected with a retryable error.
	Size int64 `mapstructure:"size"`
	// Storage names a storage extension that keeps waiting batches across restarts. Default: memory
	// only.
	Storage *component.ID `mapstructure:"storage"`
}

func createDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.InitialInterval = time.Second
	retry.MaxInterval = time.Second
	retry.MaxElapsedTime = 0
	return &Config{
		Settle:          6 * time.Second,
		MaxWait:         10 * time.Second,
		Queue:           QueueConfig{Size: 512 << 20},
		RetryOnFailure:  retry,
		ShutdownTimeout: 30 * time.Second,
		MaxSpans:        1 << 20,
		MaxSpanSize:     3_500_000,
	}
}

// maxShift: a larger one has a wrong unit.
const maxShift = time.Hour

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Settle < 0, "`settle` must not be negative, found %s", c.Settle)
	configvalidate.Positive(&bad, "max_wait", c.MaxWait)
	bad.If(c.MaxWait < c.Settle, "`max_wait` (%s) must not be shorter than `settle` (%s)", c.MaxWait, c.Settle)
	bad.If(c.Queue.Size <= 0, "`queue::size` must be a positive number of bytes, found %d", c.Queue.Size)
	configvalidate.Positive(&bad, "shutdown_timeout", c.ShutdownTimeout)
	configvalidate.Positive(&bad, "max_spans", c.MaxSpans)
	configvalidate.Positive(&bad, "max_span_size", c.MaxSpanSize)
	bad.If(c.Shift.Abs() > maxShift, "`shift` must be at most %s in either direction, found %s", maxShift, c.Shift)
	for ordinal, id := range c.Ordinals {
		n, err := strconv.Atoi(ordinal)
		bad.If(err != nil || n < 0, "`ordinals` must have device ordinals as keys, found %q", ordinal)
		bad.If(id == "", "`ordinals::%s` must be a hw.id (GPU-<uuid> or MIG-<uuid>), found nothing", ordinal)
	}
	return bad.Err()
}

// HeldSpanBytes is the heap memory in bytes of a waiting span with 12 attributes, including its
// node in the energy attribution; sizing is based on it. A test measures it.
const HeldSpanBytes = 380
