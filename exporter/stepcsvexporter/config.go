// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsvexporter

import (
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
)

// Config is the configuration of the step_csv exporter.
type Config struct {
	// Path is the path of the file, required. Folders are created.
	Path string `mapstructure:"path"`
	// Phases are the phases beyond data, forward, backward, optimizer and comm, each with a column,
	// in this order. Default none.
	Phases []string `mapstructure:"phases"`
	// Loop selects the steps of the loop of this name, which is the name of their spans. Default:
	// all loops.
	Loop string `mapstructure:"loop"`
	// AllRanks writes a file for each rank instead of one for rank 0 only.
	AllRanks bool `mapstructure:"all_ranks"`

	// Timeout limits the time of one request, as in every exporter; a write in progress is not
	// interrupted.
	Timeout exporterhelper.TimeoutConfig `mapstructure:",squash"`
	// Queue configures the queue before the file, as in every exporter. Default off.
	Queue configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// Retry configures retries of failed writes, as in every exporter. Default off: without a queue
	// it blocks the pipeline.
	Retry configretry.BackOffConfig `mapstructure:"retry_on_failure"`
}

// createDefaultConfig returns the configuration of an exporter without any keys. Path has to be
// set.
func createDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.Enabled = false // without a queue retrying blocks the pipeline
	return &Config{
		Timeout: exporterhelper.NewDefaultTimeoutConfig(),
		Queue:   configoptional.Default(exporterhelper.NewDefaultQueueConfig()),
		Retry:   retry,
	}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	return configvalidate.Read(conf, c, configvalidate.Removed{
		Key: "rotation", Use: "logrotate: a file that was moved is created again with the next row",
	})
}

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	bad.If(c.Path == "", "`path` must name a file, such as logs/steps.csv")
	bad.Names("phases", c.Phases)
	return bad.Err()
}
