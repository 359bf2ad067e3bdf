// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configvalidate"
)

// Config is the configuration of the gpu_samples exporter.
type Config struct {
	// Samples is the gpu_samples extension to write to.
	Samples component.ID `mapstructure:"samples"`
	// Instances maps MIG instances of dcgm-exporter, which identifies them by physical GPU and
	// number only, to their `MIG-<uuid>`: `GPU-<uuid>/<GPU_I_ID>` to the ID. Without an entry the
	// ID is `MIG-GPU-<uuid>/<GPU_I_ID>/0`. Default none.
	Instances map[string]string `mapstructure:"instances"`
	// Devices maps GPUs of amd_smi_exporter, which reports numbers only, to the `hw.id` of their
	// spans: `<number>` or `<host>/<number>` to the ID. GPUs without an entry are not written.
	// Default none.
	Devices map[string]string `mapstructure:"devices"`
}

func createDefaultConfig() component.Config {
	return &Config{Samples: component.MustNewID("gpu_samples")}
}

// Unmarshal decodes conf into c. The error lists unknown keys and values that do not fit the types
// of their options.
func (c *Config) Unmarshal(conf *confmap.Conf) error { return configvalidate.Read(conf, c) }

// Validate returns an error that lists every invalid value by its key.
func (c *Config) Validate() error {
	var bad configvalidate.List
	for board, id := range c.Instances {
		if i := strings.LastIndexByte(board, '/'); i <= 0 || i == len(board)-1 {
			bad.Add("`instances` must have keys of the form GPU-<uuid>/<GPU_I_ID>, found %q", board)
		}
		bad.If(!strings.HasPrefix(id, "MIG-"),
			"`instances` must have values of the form MIG-<uuid>, found %q for %q", id, board)
	}
	for number, id := range c.Devices {
		_, err := strconv.ParseUint(number[strings.LastIndexByte(number, '/')+1:], 10, 16)
		bad.If(err != nil || strings.HasPrefix(number, "/"),
			"`devices` must have keys of the form <number> or <host>/<number>, found %q", number)
		bad.If(id == "", "`devices` must have the hw.id of a GPU for %q (rocminfo states it as Uuid)", number)
	}
	return bad.Err()
}
