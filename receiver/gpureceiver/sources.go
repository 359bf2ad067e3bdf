// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"net"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/dcgmsource"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvmlsource"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/replaysource"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/simsource"
	"github.com/otelgpu/otelgpu/semconv"
)

// newSources are the sources that the configuration asks for, in the order in which they are tried.
func newSources(cfg *Config, simulated *simgpu.GPU) []gpudata.Source {
	switch cfg.Source {
	case sourceDCGM:
		return []gpudata.Source{newDCGM(cfg)}
	case sourceNVML:
		return []gpudata.Source{newNVML(cfg)}
	case sourceReplay:
		return []gpudata.Source{replaysource.New(cfg.Replay.File, cfg.Replay.Loop, cfg.Replay.Speed, time.Now)}
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
		Target: target, Sampling: cfg.SamplingInterval, Slow: cfg.CollectionInterval,
		KeepAge: cfg.DCGM.MaxKeepAge, MaxStaleness: cfg.DCGM.MaxStaleness, Profiling: cfg.DCGM.Profiling,
		Processes: wantsProcesses(cfg), Pipes: cfg.Metrics[semconv.GPUPipeUtilizationName].Enabled,
	})
}

// plainIPv4 takes the brackets away that only an IPv6 address needs ("[10.0.0.1]:5555", "[localhost]:5555"): whoever
// writes a manifest does not know which kind of address a node has, and older releases of DCGM do not know brackets.
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

// wantsProcesses: for the metric, or for the spans of processes that do not say on which device they were.
func wantsProcesses(cfg *Config) bool {
	return cfg.Samples != nil || cfg.Metrics[semconv.GPUProcessMemoryUsageName].Enabled
}
