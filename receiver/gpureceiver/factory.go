// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/dcgmsource"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvmlsource"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/recording"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/simsource"
)

// Option configures [NewFactory].
type Option func(*factory)

// WithSimulated makes the source `simulated` read a simulated GPU of the embedding program instead
// of its built-in load. The source must still be selected with `source: simulated`; `auto` never
// selects a simulated device. The source behaves like a driver: it quantizes, averages, refreshes
// counters in steps and samples with jitter, so samples never equal the device's true values.
func WithSimulated(gpu *simgpu.GPU) Option { return func(f *factory) { f.simulated = gpu } }

// factory holds the receivers under construction: one receiver serves the metrics and the logs
// pipelines of one configuration, because opening a source twice would sample twice.
type factory struct {
	simulated *simgpu.GPU
	receivers sharedcomponent.Instances[*Config, *gpuReceiver]
}

// NewFactory returns the factory of type gpu.
func NewFactory(opts ...Option) receiver.Factory {
	f := &factory{}
	for _, o := range opts {
		o(f)
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(func(
			_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics,
		) (receiver.Metrics, error) {
			return f.shared(set, cfg, func(r *gpuReceiver) { r.nextMetrics = next })
		}, metadata.MetricsStability),
		receiver.WithLogs(func(
			_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs,
		) (receiver.Logs, error) {
			return f.shared(set, cfg, func(r *gpuReceiver) { r.nextLogs = next })
		}, metadata.LogsStability))
}

// shared returns the receiver of a configuration, which has taken one more output.
func (f *factory) shared(set receiver.Settings, of component.Config, give func(*gpuReceiver)) (*gpuReceiver, error) {
	cfg := of.(*Config)
	r, err := f.receivers.Get(cfg, nil, func(forget func()) (*gpuReceiver, error) {
		r, err := newReceiver(cfg, set, newSources(cfg, f.simulated))
		if err == nil {
			r.forget, r.processSource = forget, newProcessSource(cfg, f.simulated)
		}
		return r, err
	})
	if err == nil {
		give(r)
	}
	return r, err
}

// newSources returns the configured sources, in the order in which they are tried.
func newSources(cfg *Config, simulated *simgpu.GPU) []gpudata.Source {
	switch cfg.Source {
	case sourceDCGM:
		return []gpudata.Source{newDCGM(cfg)}
	case sourceNVML:
		return []gpudata.Source{newNVML(cfg)}
	case sourceSamples:
		return nil
	case sourceReplay:
		return []gpudata.Source{recording.NewSource(cfg.Replay.File, cfg.Replay.Loop, cfg.Replay.Speed, time.Now)}
	case sourceSimulated:
		devices := simsource.Loads(cfg.Simulated.Devices, cfg.Simulated.Seed, time.Now)
		if simulated != nil {
			devices = simsource.Of(simulated)
		}
		return []gpudata.Source{simsource.New(devices, cfg.SamplingInterval, cfg.Simulated.Seed)}
	default:
		return []gpudata.Source{newDCGM(cfg), newNVML(cfg)}
	}
}

func newDCGM(cfg *Config) gpudata.Source {
	target := plainIPv4(cfg.DCGM.Endpoint)
	if cfg.DCGM.Embedded {
		target = dcgmsource.Embedded
	}
	return dcgmsource.New(dcgmsource.Settings{
		Target: target, Sampling: max(cfg.SamplingInterval, dcgmsource.LeastSampling), Slow: cfg.CollectionInterval,
		KeepAge: cfg.DCGM.MaxKeepAge, MaxStaleness: cfg.DCGM.MaxStaleness, Profiling: cfg.DCGM.Profiling,
		Processes: wantsProcesses(cfg), Without: unwanted(cfg),
	})
}

// unwanted returns the quantities that no enabled metric needs, of those whose metric is off by
// default.
func unwanted(cfg *Config) []gpuquantity.Quantity {
	return slices.DeleteFunc(gpuquantity.All(), func(q gpuquantity.Quantity) bool {
		m := &q.Info().Metric
		return !m.Off || q.HasRing() || cfg.Metrics[m.Name].Enabled
	})
}

// plainIPv4 removes the brackets that only an IPv6 address needs ("[10.0.0.1]:5555",
// "[localhost]:5555"): the author of a manifest does not know which kind of address a node has, and
// older releases of DCGM do not accept brackets.
func plainIPv4(endpoint string) string {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil || strings.Contains(host, ":") {
		return endpoint
	}
	return host + ":" + port
}

func newNVML(cfg *Config) gpudata.Source {
	return nvmlsource.New(nvmlsource.Settings{
		Library: cfg.NVML.Library, Sampling: cfg.SamplingInterval, Slow: cfg.CollectionInterval, GPM: cfg.NVML.GPM,
		Processes: wantsProcesses(cfg),
	})
}

// newProcessSource returns the source of what processes use; nil for sources without a driver.
func newProcessSource(cfg *Config, simulated *simgpu.GPU) gpudata.ProcessSource {
	switch {
	case cfg.Source == sourceSimulated && simulated == nil:
		return simsource.Processes(cfg.Simulated.Devices, cfg.Simulated.Seed, time.Now)
	case cfg.Source == sourceReplay, cfg.Source == sourceSimulated, cfg.Source == sourceSamples:
		return nil
	}
	return nvmlsource.NewProcesses(cfg.NVML.Library)
}

// wantsProcesses: for metrics of processes, or for spans of processes that do not name their
// device.
func wantsProcesses(cfg *Config) bool { return cfg.Samples != nil || cfg.Processes.Enabled }
