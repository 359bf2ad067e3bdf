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

// Config of the receiver.
type Config struct {
	// Folder is where processes create their rings: their OTELGPU_CAPTURE_DIR (default /dev/shm/otelgpu).
	Folder string `mapstructure:"folder"`
	// Window is how long each window records (default 200ms, at most 60s).
	Window time.Duration `mapstructure:"window"`
	// Every is the time from one window of a process to its next (default 1m). 0 opens none: then only `otelcol-gpu
	// capture` does.
	Every time.Duration `mapstructure:"every"`
	// Budget is the maximum number of records per second of a window; a window that has used it up ends early (default
	// 100000).
	Budget int `mapstructure:"budget"`
	// Kinds are what is recorded: kernel, copy, memset, graph (default all). With graph, a launch of a CUDA graph is one
	// record.
	Kinds []string `mapstructure:"kinds"`
	// MaxProcesses bounds how many rings are read at once (default 64).
	MaxProcesses int `mapstructure:"max_processes"`
	// Spans controls how a window becomes spans.
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
		Folder: defaultFolder, Window: 200 * time.Millisecond, Every: time.Minute, Budget: 100_000, MaxProcesses: 64,
		Kinds: kindNames(), Spans: profiletrace.DefaultOptions(defaultService),
	}
}

// Unmarshal rejects numbers that the options do not accept.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate reports every problem.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Folder == "", "`folder` must not be empty")
	bad.If(c.Window <= 0 || c.Window > maxWindow,
		"`window` must be above 0 and at most %v, found %v", maxWindow, c.Window)
	bad.If(c.Every != 0 && c.Every < c.Window,
		"`every` must be 0 (no windows) or at least `window`, %v, found %v", c.Window, c.Every)
	bad.If(c.Budget < 1 || c.Budget > maxBudget,
		"`budget` must be from 1 to %d records per second, found %d", maxBudget, c.Budget)
	bad.If(c.MaxProcesses < 1, "`max_processes` must be at least 1, found %d", c.MaxProcesses)
	bad.If(len(c.Kinds) == 0, "`kinds` must not be empty (of %v)", kindNames())
	for _, k := range c.Kinds {
		bad.If(!slices.Contains(kindNames(), k), "`kinds` has %q, which is not one of %v", k, kindNames())
	}
	bad.Join(c.Spans.Check())
	return bad.Err()
}

// kindNames returns the kinds of record, in the order of their bits in a request.
func kindNames() []string { return []string{"kernel", "copy", "memset", "graph"} }

func (c *Config) kinds() uint32 {
	out := ring.KindContext // always requested: they identify the launching thread
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
	Outcome  string           // recorded, budget, or the reason why there is nothing
	Records  int64            // activities of the device that were read
	Dropped  map[string]int64 // lost records, by reason
	Message  string           // of a refused window, for people
	Remark   string           // of a recorded window, for people
	Attached int64            // activities below a live span
}
