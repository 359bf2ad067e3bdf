// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/demo"
)

func newDemoCommand() *cobra.Command {
	o := demo.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run an instrumented service through the pipelines and show what comes out",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd, "the files in "+o.Out+" are not complete")
			defer stop()
			o.Terminal = terminal(os.Stdout)
			return demo.Run(ctx, cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().DurationVar(&o.Duration, "duration", 30*time.Second, "how long the workload runs")
	cmd.Flags().BoolVar(&o.Simulated, "simulated", false, "use a simulated device also where there is a GPU")
	cmd.Flags().BoolVar(&o.HTML, "html", false,
		"write the page to report.html at the end: one file, which needs no network")
	cmd.Flags().StringVar(&o.Out, "out", "otelgpu-demo", "folder for trace.json, spans.json and metrics.json")
	cmd.Flags().StringVar(&o.Send, "otlp", "", "send the spans to a store as well: host:port (gRPC), or http://host:port")
	return cmd
}

// terminal is f where it is one that can take cursor movements, else nil.
func terminal(f *os.File) *os.File {
	if os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}
