// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/dcgmsource"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
)

// Config is the configuration of the gpu receiver.
type Config struct {
	// Source is the source of the data: auto (dcgm, then nvml), dcgm, nvml, replay, simulated, or
	// samples: no devices, but the energy of pods that other components have written to Samples.
	// Default auto.
	Source string `mapstructure:"source" enum:"auto,dcgm,nvml,replay,samples,simulated"`
	// CollectionInterval is the time between two emissions of metrics, at least 100ms.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`
	// SamplingInterval is the time between two samples of a device, at least 1ms and at most
	// CollectionInterval.
	SamplingInterval time.Duration `mapstructure:"sampling_interval"`
	// Samples is the gpu_samples extension to which every sample is written. Default none.
	Samples *component.ID `mapstructure:"samples"`
	// CallTimeout is the time after which a call of the source counts as hung, at least 10ms: it is
	// reported, and `auto` continues with the next source. DCGM takes 5s to report that nothing
	// listens.
	CallTimeout time.Duration `mapstructure:"call_timeout"`
	// RetryInterval is the maximum time between two attempts to open a source, at least 10ms; the
	// first retry follows after 1s, and the time doubles.
	RetryInterval time.Duration `mapstructure:"retry_interval"`

	// DCGM, NVML, Replay and Simulated configure the source of that name; the others are ignored.
	DCGM      DCGMConfig      `mapstructure:"dcgm"`
	NVML      NVMLConfig      `mapstructure:"nvml"`
	Replay    ReplayConfig    `mapstructure:"replay"`
	Simulated SimulatedConfig `mapstructure:"simulated"`

	// Kubernetes adds the pod that uses a device to its values. Default off; the empty key
	// `kubernetes:` turns it on.
	Kubernetes configoptional.Optional[KubernetesConfig] `mapstructure:"kubernetes"`

	// Processes configures the metrics of processes.
	Processes ProcessesConfig `mapstructure:"processes"`

	// Metrics enables and disables single metrics, by name. Default: as in docs/semconv and the
	// README.
	Metrics map[string]MetricConfig `mapstructure:"metrics"`
}

// ProcessesConfig configures the metrics of processes: energy, utilization and memory.
type ProcessesConfig struct {
	// Enabled measures processes.
	Enabled bool `mapstructure:"enabled"`
	// Interval is the time between two reads of the utilization of each process, from 50ms to 10s.
	// Drivers measure it every 1/6s to 1s; longer intervals widen the error.
	Interval time.Duration `mapstructure:"interval"`
	// MaxPerDevice is the maximum number of processes of one GPU, from 1 to 4096. The energy of
	// further ones is unattributed.
	MaxPerDevice int `mapstructure:"max_per_device"`
}

// MetricConfig enables or disables one metric.
type MetricConfig struct {
	// Enabled emits the metric.
	Enabled bool `mapstructure:"enabled"`
}

// DCGMConfig configures the connection to DCGM.
type DCGMConfig struct {
	// Endpoint is the address of the host engine: `host:port`, or `unix:///path`. Default
	// localhost:5555. Ignored with Embedded.
	Endpoint string `mapstructure:"endpoint"`
	// Embedded runs the host engine inside the Collector instead of connecting to one.
	Embedded bool `mapstructure:"embedded"`
	// MaxKeepAge is how long the host engine keeps samples, at least 1s: the longest stall without
	// loss.
	MaxKeepAge time.Duration `mapstructure:"max_keep_age"`
	// Profiling watches the profiling fields (1001 to 1012) if the devices have them.
	Profiling bool `mapstructure:"profiling"`
	// MaxStaleness drops latest values that are this much older than the newest value of the same
	// read; at least 1s.
	MaxStaleness time.Duration `mapstructure:"max_staleness"`
}

// NVMLConfig configures NVML.
type NVMLConfig struct {
	// Library is the path of libnvidia-ml. Default: the dynamic loader finds it.
	Library string `mapstructure:"library"`
	// GPM reads the ratios of GPU performance monitoring on Hopper and later.
	GPM bool `mapstructure:"gpm"`
}

// ReplayConfig selects the recording to play.
type ReplayConfig struct {
	// File is the recording; required for source replay.
	File string `mapstructure:"file"`
	// Loop plays it again from the start forever. Default false: at the end the receiver sends
	// nothing more.
	Loop bool `mapstructure:"loop"`
	// Speed is recorded time divided by real time, from 0.001 to 1,000,000.
	Speed float64 `mapstructure:"speed"`
}

// SimulatedConfig describes the built-in simulated devices, which are used unless the embedding
// program provides its own.
type SimulatedConfig struct {
	// Devices is the number of devices, from 1 to 64.
	Devices int `mapstructure:"devices"`
	// Seed of the noise, of the phases and of the identity: 1, the default, for the devices of
	// simgpu, others for other hosts.
	Seed uint64 `mapstructure:"seed"`
}

// KubernetesConfig configures the connection to the kubelet.
type KubernetesConfig struct {
	// PodResources is the socket of the kubelet's pod-resources API. Default
	// /var/lib/kubelet/pod-resources/kubelet.sock.
	PodResources string `mapstructure:"pod_resources"`
	// ContainerLogs is the folder in which the kubelet links the logs of containers, for the names
	// of the containers of processes on shared devices. Default /var/log/containers.
	ContainerLogs string `mapstructure:"container_logs"`
	// ResourceSlices reads from the cluster's API which device a claim of dynamic resource
	// allocation is. Default false: the claim's files and name tell it for most.
	ResourceSlices bool `mapstructure:"resource_slices"`
}

// Validate returns an error that lists every invalid value by its key.
func (c *KubernetesConfig) Validate() error {
	var bad configvalidate.List
	bad.If(!filepath.IsAbs(c.PodResources), "`pod_resources` must be an absolute path, found %q", c.PodResources)
	bad.If(!filepath.IsAbs(c.ContainerLogs), "`container_logs` must be an absolute path, found %q", c.ContainerLogs)
	return bad.Err()
}

// The sources.
const (
	sourceAuto      = "auto"
	sourceDCGM      = "dcgm"
	sourceNVML      = "nvml"
	sourceReplay    = "replay"
	sourceSamples   = "samples"
	sourceSimulated = "simulated"
)

// maxProcessInterval is about how long drivers remember the utilization of processes.
const maxProcessInterval = 10 * time.Second

// Bounds of the speed of a replay, within which its times fit.
const (
	minSpeed = 1e-3
	maxSpeed = 1e6
)

func createDefaultConfig() component.Config {
	return &Config{
		Source:             sourceAuto,
		CollectionInterval: 10 * time.Second,
		SamplingInterval:   100 * time.Millisecond,
		CallTimeout:        10 * time.Second,
		RetryInterval:      30 * time.Second,
		DCGM: DCGMConfig{
			Endpoint: "localhost:5555", MaxKeepAge: 2 * time.Minute, Profiling: true, MaxStaleness: time.Minute,
		},
		NVML:      NVMLConfig{GPM: true},
		Replay:    ReplayConfig{Speed: 1},
		Simulated: SimulatedConfig{Devices: 1, Seed: 1},
		Kubernetes: configoptional.Default(KubernetesConfig{
			PodResources: podresources.DefaultSocket, ContainerLogs: processes.DefaultContainerLogs,
		}),
		Processes: ProcessesConfig{Enabled: true, Interval: 250 * time.Millisecond, MaxPerDevice: 256},
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	switch c.Source {
	case sourceAuto, sourceDCGM, sourceNVML, sourceSimulated:
	case sourceReplay:
		bad.If(c.Replay.File == "", "`replay::file` must be set when `source` is replay")
	case sourceSamples:
		bad.If(c.Samples == nil, "`samples` must be set when `source` is samples")
	default:
		bad.Add("`source` must be one of auto, dcgm, nvml, replay, samples, simulated, found %q", c.Source)
	}
	for _, d := range []struct {
		key      string
		value    time.Duration
		smallest time.Duration
	}{
		{"collection_interval", c.CollectionInterval, 100 * time.Millisecond},
		{"sampling_interval", c.SamplingInterval, time.Millisecond},
		{"call_timeout", c.CallTimeout, 10 * time.Millisecond},
		{"retry_interval", c.RetryInterval, 10 * time.Millisecond},
		{"processes::interval", c.Processes.Interval, 50 * time.Millisecond},
		{"dcgm::max_keep_age", c.DCGM.MaxKeepAge, time.Second},
		{"dcgm::max_staleness", c.DCGM.MaxStaleness, time.Second},
	} {
		bad.If(d.value < d.smallest, "`%s` must be at least %s, found %s", d.key, d.smallest, d.value)
	}
	bad.If(c.Source == sourceDCGM && c.SamplingInterval < dcgmsource.LeastSampling,
		"`sampling_interval` must be at least %s if `source` is dcgm, found %s", dcgmsource.LeastSampling, c.SamplingInterval)
	bad.If(c.SamplingInterval > c.CollectionInterval,
		"`sampling_interval` (%s) must not be longer than `collection_interval` (%s)", c.SamplingInterval,
		c.CollectionInterval)
	bad.If(c.DCGM.Endpoint == "" && !c.DCGM.Embedded, "`dcgm::endpoint` must be set unless `dcgm::embedded` is true")
	bad.If(!(c.Replay.Speed >= minSpeed && c.Replay.Speed <= maxSpeed),
		"`replay::speed` must be between %g and %g, found %g", minSpeed, maxSpeed, c.Replay.Speed)
	bad.If(c.Simulated.Devices < 1 || c.Simulated.Devices > 64,
		"`simulated::devices` must be between 1 and 64, found %d", c.Simulated.Devices)
	bad.If(c.Processes.Interval > maxProcessInterval, "`processes::interval` must be at most %s, found %s",
		maxProcessInterval, c.Processes.Interval)
	bad.If(c.Processes.MaxPerDevice < 1 || c.Processes.MaxPerDevice > 4096,
		"`processes::max_per_device` must be between 1 and 4096, found %d", c.Processes.MaxPerDevice)
	for _, name := range slices.Sorted(maps.Keys(c.Metrics)) {
		bad.If(metricByName[name] == nil, "`metrics` has an unknown name %q (known: %s)", name,
			strings.Join(slices.Sorted(maps.Keys(metricByName)), ", "))
	}
	return bad.Err()
}
