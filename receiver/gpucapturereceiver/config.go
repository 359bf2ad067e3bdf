// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpucapturereceiver

import (
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver/internal/ring"
)

// Config is the configuration of the gpu_capture receiver.
type Config struct {
	// Folder is the folder in which processes create their rings, their OTELGPU_CAPTURE_DIR
	// (default /dev/shm/otelgpu).
	Folder string `mapstructure:"folder"`
	// Window is the length of each window (default 200ms, at most 1m).
	Window time.Duration `mapstructure:"window"`
	// Every is the time from one window of a process to the next, at least Window (default 1m). 0:
	// windows are opened by `otelcol-gpu capture` only.
	Every time.Duration `mapstructure:"every"`
	// Budget is the maximum number of records per second of a window, from 1 to 5,000,000; a window
	// that exceeds it ends early (default 100000).
	Budget int `mapstructure:"budget"`
	// MaxCost is the maximum share of a process's time that its windows may cost, above 0 and at most
	// 1 (default 0.02). Windows that cost more, by an estimate from above, are opened less often than
	// Every.
	MaxCost float64 `mapstructure:"max_cost"`
	// Kinds are the kinds of activity to record: kernel, copy and memset (default all). The kernels
	// of a CUDA graph are recorded one by one.
	Kinds []string `mapstructure:"kinds"`
	// MaxProcesses is the maximum number of processes whose rings are read, at least 1 (default
	// 64).
	MaxProcesses int `mapstructure:"max_processes"`
	// Spans configures the conversion of a window to spans.
	Spans profiletrace.Options `mapstructure:",squash"`
}

const (
	defaultFolder  = "/dev/shm/otelgpu"
	defaultService = "cuda"
	maxWindow      = time.Minute
	maxBudget      = 5_000_000
)

var _ confmap.Validator = (*Config)(nil)

func createDefaultConfig() component.Config {
	return &Config{
		Folder: defaultFolder, Window: 200 * time.Millisecond, Every: time.Minute, Budget: 100_000, MaxCost: 0.02,
		MaxProcesses: 64, Kinds: kindNames(), Spans: profiletrace.DefaultOptions(defaultService),
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Folder == "", "`folder` must not be empty")
	bad.If(c.Window <= 0 || c.Window > maxWindow,
		"`window` must be above 0 and at most %v, found %v", maxWindow, c.Window)
	bad.If(c.Every != 0 && c.Every < c.Window,
		"`every` must be 0 (no windows) or at least `window`, %v, found %v", c.Window, c.Every)
	bad.If(c.Budget < 1 || c.Budget > maxBudget,
		"`budget` must be from 1 to %d records per second, found %d", maxBudget, c.Budget)
	bad.If(!(c.MaxCost > 0 && c.MaxCost <= 1), "`max_cost` must be above 0 and at most 1, found %v", c.MaxCost)
	bad.If(c.MaxProcesses < 1, "`max_processes` must be at least 1, found %d", c.MaxProcesses)
	bad.If(len(c.Kinds) == 0, "`kinds` must not be empty (of %v)", kindNames())
	for _, k := range c.Kinds {
		bad.If(!slices.Contains(kindNames(), k), "`kinds` has %q, which is not one of %v", k, kindNames())
	}
	bad.Join(c.Spans.Check())
	return bad.Err()
}

// kindNames returns the kinds of record, in the order of their bits in a request.
func kindNames() []string { return []string{"kernel", "copy", "memset"} }

func (c *Config) kinds() uint32 {
	out := ring.KindContext | ring.KindCall // always requested: who launched an activity, and when
	for _, k := range c.Kinds {
		out |= 1 << slices.Index(kindNames(), k)
	}
	return out
}

// budget returns the maximum number of records of one window.
func (c *Config) budget() uint64 { return uint64(max(1, float64(c.Budget)*c.Window.Seconds())) }

// Result is the outcome of one window.
type Result struct {
	profiletrace.Stats
	Outcome  string           // recorded, budget, or the reason why nothing was recorded
	Records  int64            // number of device activities that were read
	Dropped  map[string]int64 // lost records, by reason
	Message  string           // explanation of a rejected window, for people
	Remark   string           // remark on a recorded window, for people
	Attached int64            // activities below a live span
}
