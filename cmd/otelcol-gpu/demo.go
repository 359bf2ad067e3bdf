// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/demo"
)

func newDemoCommand() *cobra.Command {
	o := demo.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run an instrumented service through the pipelines and show what comes out",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			o.Terminal = isTerminal(os.Stdout)
			return demo.Run(ctx, cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().DurationVar(&o.Duration, "duration", 30*time.Second, "how long the workload runs")
	cmd.Flags().BoolVar(&o.Simulated, "simulated", false, "use a simulated device also where there is a GPU")
	cmd.Flags().StringVar(&o.Out, "out", "otelgpu-demo", "folder for trace.json, spans.json and metrics.json")
	return cmd
}

// isTerminal reports whether f is a character device that can take cursor movements.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
