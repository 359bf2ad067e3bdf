// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/internal/shared"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
)

// Option changes what the factory makes.
type Option interface{ apply(*factory) }

type optionFunc func(*factory)

func (f optionFunc) apply(x *factory) { f(x) }

// WithSimulated gives the source `simulated` the devices of a GPU of the program that holds the receiver instead of the
// built-in load. The source must still be chosen by `source: simulated`; `auto` never takes a simulated device for a
// real one. The source behaves as a driver above the GPU: it quantises, averages, refreshes counters in stairs and
// samples with jitter of its own, so what is sampled is never what the device knows about its work.
func WithSimulated(gpu *simgpu.GPU) Option {
	return optionFunc(func(f *factory) { f.simulated = gpu })
}

// factory holds the receivers in the making: one receiver serves the metrics and the logs pipelines of one
// configuration, because opening a source twice would sample twice.
type factory struct {
	simulated *simgpu.GPU
	receivers shared.Instances[*Config, *gpuReceiver]
}

// NewFactory makes the factory of type gpu.
func NewFactory(opts ...Option) receiver.Factory {
	f := &factory{}
	for _, o := range opts {
		o.apply(f)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(f.createMetrics, metadata.MetricsStability),
		receiver.WithLogs(f.createLogs, metadata.LogsStability))
}

func (f *factory) createMetrics(_ context.Context, set receiver.Settings, cfg component.Config,
	next consumer.Metrics,
) (receiver.Metrics, error) {
	r, err := f.shared(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	r.nextMetrics = next
	return r, nil
}

func (f *factory) createLogs(_ context.Context, set receiver.Settings, cfg component.Config,
	next consumer.Logs,
) (receiver.Logs, error) {
	r, err := f.shared(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	r.nextLogs = next
	return r, nil
}

func (f *factory) shared(set receiver.Settings, cfg *Config) (*gpuReceiver, error) {
	any := func(*gpuReceiver) bool { return true }
	return f.receivers.Get(cfg, any, func(forget func()) (*gpuReceiver, error) {
		r, err := newReceiver(cfg, set, newSources(cfg, f.simulated))
		if err == nil {
			r.forget = forget
		}
		return r, err
	})
}
