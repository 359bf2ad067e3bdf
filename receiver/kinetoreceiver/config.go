// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"path/filepath"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
	"github.com/otelgpu/otelgpu/internal/profiletrace/follow"
)

// Config is the configuration of the kineto receiver.
type Config struct {
	follow.Profiles `mapstructure:",squash"`
	// Partial reads the intact beginning of a truncated file (default false: such a file is
	// rejected and read again when it changes).
	Partial bool `mapstructure:"partial"`
	// FolderIsJob sets gpu.job.id to the folder of a file if neither the file nor the configuration
	// has one (default false), for folders with the files of one run.
	FolderIsJob bool `mapstructure:"folder_is_job"`
	// Shapes writes gpu.operation.shapes on operators (default false).
	Shapes bool `mapstructure:"shapes"`
	// Captures are path patterns of traces that recorded the capture of CUDA graphs which the files
	// launch (default none).
	Captures []string `mapstructure:"captures"`
}

var (
	_ confmap.Unmarshaler = (*Config)(nil)
	_ confmap.Validator   = (*Config)(nil)
)

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error { return c.Check() }

func createDefaultConfig() component.Config {
	return &Config{Profiles: follow.NewProfiles(defaultService)}
}

// optionsOf adds to o what it does not have for one file.
func (c *Config) optionsOf(o Options, path string) Options {
	o.Partial, o.Shapes, o.Captures = c.Partial, c.Shapes, c.Captures
	if !c.FolderIsJob || o.JobID != "" {
		return o
	}
	if abs, err := filepath.Abs(path); err == nil { // the folders of two nodes with one file system are one
		o.JobID = filepath.ToSlash(filepath.Dir(abs))
	}
	return o
}
