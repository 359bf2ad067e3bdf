// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
)

// Config of the exporter. README.md explains each key.
type Config struct {
	Path     string                            `mapstructure:"path"`
	Phases   []string                          `mapstructure:"phases"`
	Loop     string                            `mapstructure:"loop"`
	AllRanks bool                              `mapstructure:"all_ranks"`
	Rotation configoptional.Optional[Rotation] `mapstructure:"rotation"`

	Timeout exporterhelper.TimeoutConfig                             `mapstructure:",squash"`
	Queue   configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	Retry   configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

// Rotation says when a file is set aside and how many are kept.
type Rotation struct {
	MaxMegabytes int64 `mapstructure:"max_megabytes"` // of 10^6 bytes
	MaxFiles     int   `mapstructure:"max_files"`
}

// NewDefaultConfig is the configuration of an exporter without any keys. Path has to be set.
func NewDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.Enabled = false // without a queue retrying blocks the pipeline
	return &Config{
		Rotation: configoptional.Default(Rotation{MaxMegabytes: 50, MaxFiles: 20}),
		Timeout:  exporterhelper.NewDefaultTimeoutConfig(),
		Queue:    configoptional.Default(exporterhelper.NewDefaultQueueConfig()),
		Retry:    retry,
	}
}

// Validate reports every mistake at once.
func (c *Config) Validate() error {
	var errs []error
	if c.Path == "" {
		errs = append(errs, errors.New("`path` must name a file, such as logs/steps.csv"))
	}
	for _, p := range c.Phases {
		if p == "" {
			errs = append(errs, errors.New("`phases` must not hold an empty name"))
		}
	}
	return errors.Join(errs...)
}

// Validate implements confmap.Validator.
func (r *Rotation) Validate() error {
	var errs []error
	if r.MaxMegabytes <= 0 {
		errs = append(errs, fmt.Errorf("`max_megabytes` must be positive, found %d", r.MaxMegabytes))
	}
	if r.MaxFiles < 0 {
		errs = append(errs, fmt.Errorf("`max_files` must be non-negative, found %d", r.MaxFiles))
	}
	return errors.Join(errs...)
}
