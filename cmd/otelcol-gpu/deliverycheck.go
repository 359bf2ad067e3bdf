// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/delivery"
)

// deliveryCheck is a converter that warns about settings with which a pipeline can lose or repeat
// spans. It does not change the configuration. At start the warnings are logged; validate, which
// logs nothing, prints them.
type deliveryCheck struct{ warnings []string }

func (d *deliveryCheck) factory() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(set confmap.ConverterSettings) confmap.Converter {
		return deliveryConverter{d, set}
	})
}

type deliveryConverter struct {
	*deliveryCheck
	set confmap.ConverterSettings
}

func (d deliveryConverter) Convert(_ context.Context, conf *confmap.Conf) error {
	d.warnings = delivery.Warnings(conf.ToStringMap())
	for _, w := range d.warnings {
		d.set.Logger.Warn(w)
	}
	return nil
}

// printAfter makes a command print the warnings when it has succeeded.
func (d *deliveryCheck) printAfter(cmd *cobra.Command) {
	cmd.PostRun = func(cmd *cobra.Command, _ []string) {
		for _, w := range d.warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
		}
	}
}
