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

// Config of the gpu_join processor.
type Config struct {
	// Samples names the gpu_samples extension with the device samples. Default none: spans pass unchanged.
	Samples *component.ID `mapstructure:"samples"`
	// Settle is how long after its time an instant of a device is attributed, so that spans of other processes can arrive.
	// Longer than the export interval of the SDKs (5 s by default). Default 6s.
	Settle time.Duration `mapstructure:"settle"`
	// MaxWait bounds the time for which a batch waits for samples and for the settled time. Default 10s.
	MaxWait time.Duration `mapstructure:"max_wait"`
	// Queue holds the batches that wait.
	Queue QueueConfig `mapstructure:"queue"`
	// RetryOnFailure configures retries when the next component refuses a joined batch. Default: retried forever, because
	// the queue is bounded and refuses what it cannot hold.
	RetryOnFailure configretry.BackOffConfig `mapstructure:"retry_on_failure"`
	// MaxSpans bounds the spans that energy attribution keeps at once, waiting and remembered. Default 1048576.
	MaxSpans int `mapstructure:"max_spans"`
	// Shift moves the clock of the samples against the spans' clock: a sample of time t describes what spans did at
	// t − shift. Positive for meters that lag behind and for services whose clock is behind, negative for services
	// whose clock is ahead. Default 0.
	Shift time.Duration `mapstructure:"shift"`
	// Ordinals maps gpu.device.ordinal to hw.id, for spans without any other identity. Default none.
	Ordinals map[string]string `mapstructure:"ordinals"`
	// EnergyOnMIG gives spans on MIG instances their share of the physical GPU's energy. Default false.
	EnergyOnMIG bool `mapstructure:"energy_on_mig"`
	// Events adds a span event for each XID, memory error and throttle change, in addition to the attributes. Default
	// false.
	Events bool `mapstructure:"events"`
	// Attributes selects how much is written on a span: lean writes what a person needs, quality only if it is unusual,
	// and means with five significant digits; full writes everything known. Default lean.
	Attributes spanfacts.Level `mapstructure:"attributes" enum:"lean,full"`
}

// QueueConfig limits what is held.
type QueueConfig struct {
	// Size is in bytes of OTLP protobuf; a batch that does not fit is refused with a retryable error. Default 512 MiB.
	Size int64 `mapstructure:"size"`
	// Storage names a storage extension that keeps held batches across restarts. Default: memory only.
	Storage *component.ID `mapstructure:"storage"`
}

func createDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.InitialInterval = time.Second
	retry.MaxElapsedTime = 0
	return &Config{
		Settle:         6 * time.Second,
		MaxWait:        10 * time.Second,
		Queue:          QueueConfig{Size: 512 << 20},
		RetryOnFailure: retry,
		MaxSpans:       1 << 20,
	}
}

// maxShift: a larger one has a wrong unit.
const maxShift = time.Hour

// Unmarshal rejects numbers that the options do not accept.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate reports every problem at once.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Settle < 0, "`settle` must not be negative, found %s", c.Settle)
	configvalidate.Positive(&bad, "max_wait", c.MaxWait)
	bad.If(c.MaxWait < c.Settle, "`max_wait` (%s) must not be shorter than `settle` (%s)", c.MaxWait, c.Settle)
	bad.If(c.Queue.Size <= 0, "`queue::size` must be a positive number of bytes, found %d", c.Queue.Size)
	configvalidate.Positive(&bad, "max_spans", c.MaxSpans)
	bad.If(c.Shift.Abs() > maxShift, "`shift` must be at most %s in either direction, found %s", maxShift, c.Shift)
	for ordinal, id := range c.Ordinals {
		n, err := strconv.Atoi(ordinal)
		bad.If(err != nil || n < 0, "`ordinals` must have device ordinals as keys, found %q", ordinal)
		bad.If(id == "", "`ordinals::%s` must be a hw.id (GPU-<uuid> or MIG-<uuid>), found nothing", ordinal)
	}
	return bad.Err()
}

// HeldSpanBytes is the heap memory of a span of 12 attributes while it waits, with its node in the energy attribution;
// sizing is based on it. A test measures it.
const HeldSpanBytes = 440
