// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"path/filepath"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
)

// Config of the receiver.
type Config struct {
	// Files selects the files to read, and when.
	Files follow.Config `mapstructure:",squash"`
	// Spans controls how they become spans.
	Spans profiletrace.Options `mapstructure:",squash"`
	// Partial reads a truncated file as far as it goes (default false: such a file is rejected and read again when it
	// changes).
	Partial bool `mapstructure:"partial"`
	// FolderIsJob takes the folder of a file as gpu.job.id, where neither the file nor the configuration has one
	// (default false): for folders that hold the files of one run.
	FolderIsJob bool `mapstructure:"folder_is_job"`
	// Shapes writes gpu.operation.shapes on operators (default false).
	Shapes bool `mapstructure:"shapes"`
	// Captures are patterns of paths of traces with the captures of graphs that the files launch (default none).
	Captures []string `mapstructure:"captures"`
}

var (
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

// Unmarshal rejects numbers that the options do not accept.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate reports every problem.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.Join(c.Files.Check())
	bad.Join(c.Spans.Check())
	return bad.Err()
}

func createDefaultConfig() component.Config {
	return &Config{Files: follow.NewDefaultConfig(), Spans: profiletrace.DefaultOptions(defaultService)}
}

// optionsOf returns the Options for one file.
func (c *Config) optionsOf(path string) Options {
	o := c.Spans
	o.Partial, o.Shapes, o.Captures = c.Partial, c.Shapes, c.Captures
	if !c.FolderIsJob || o.JobID != "" {
		return o
	}
	if abs, err := filepath.Abs(path); err == nil { // the folders of two nodes with one file system are one
		o.JobID = filepath.ToSlash(filepath.Dir(abs))
	}
	return o
}
