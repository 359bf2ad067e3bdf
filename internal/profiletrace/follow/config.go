// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
)

// Mode is when files are read.
type Mode string

// Modes.
const (
	ModeFollow Mode = "follow" // existing and new files
	ModeOnce   Mode = "once"   // existing files
)

// Config selects the files to read, and when.
type Config struct {
	// Include are patterns of paths, with ** for any number of folders; at least one.
	Include []string `mapstructure:"include"`
	// Exclude are patterns of paths to skip (default none).
	Exclude []string `mapstructure:"exclude"`
	// Mode is follow (default) or once.
	Mode Mode `mapstructure:"mode" enum:"follow,once"`
	// PollInterval is how often the patterns are looked up (default 5s).
	PollInterval time.Duration `mapstructure:"poll_interval"`
	// StableFor is how long a file's size and modification time must be unchanged before it is read
	// (default 5s; 0 reads at once). Mode once does not wait.
	StableFor time.Duration `mapstructure:"stable_for"`
	// Storage is a storage extension that records which files were read (default none: a restart
	// reads all files again).
	Storage *component.ID `mapstructure:"storage"`
	// ReplayBatches is how many of the last batches are sent again, with the same IDs, if the
	// Collector was killed (default 10,000; 0: none). An exporter's queue in memory loses its
	// contents then; use at least its queue_size, times the batches that a batch processor joins.
	// Without Storage it has no effect: all files are read again.
	ReplayBatches int `mapstructure:"replay_batches"`
	// prevent unkeyed literal initialization
	_ struct{}
}

// Profiles is the configuration of a receiver that reads profiles from files.
type Profiles struct {
	// Files selects the files to read and when to read them.
	Files Config `mapstructure:",squash"`
	// Spans configures the conversion to spans.
	Spans profiletrace.Options `mapstructure:",squash"`
}

// NewProfiles returns the default values, with a name of the service.
func NewProfiles(service string) Profiles {
	return Profiles{
		Files: Config{Mode: ModeFollow, PollInterval: 5 * time.Second, StableFor: 5 * time.Second, ReplayBatches: 10_000},
		Spans: profiletrace.DefaultOptions(service),
	}
}

// Check reports every problem; see profiletrace.Options.Check.
func (c *Profiles) Check() error {
	var bad configvalidate.List
	bad.Join(c.Files.Check())
	bad.Join(c.Spans.Check())
	return bad.Err()
}

// Check reports every problem; see profiletrace.Options.Check.
func (c *Config) Check() error {
	var bad configvalidate.List
	bad.If(len(c.Include) == 0, "`include` must name at least one pattern, found none")
	check := func(key string, list []string) {
		for _, p := range list {
			bad.If(p == "" || !doublestar.ValidatePathPattern(p), "`%s` must contain valid patterns, found %q", key, p)
		}
	}
	check("include", c.Include)
	check("exclude", c.Exclude)
	bad.If(c.Mode != ModeFollow && c.Mode != ModeOnce, "`mode` must be follow or once, found %q", c.Mode)
	bad.If(c.PollInterval <= 0, "`poll_interval` must be positive, found %s", c.PollInterval)
	bad.If(c.StableFor < 0, "`stable_for` must be non-negative, found %s", c.StableFor)
	bad.If(c.ReplayBatches < 0, "`replay_batches` must be non-negative, found %d", c.ReplayBatches)
	return bad.Err()
}
