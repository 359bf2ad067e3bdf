// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

func newConvertCommand() *cobra.Command {
	var detail kinetoreceiver.Detail
	o := convert.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use:   "convert [--detail LEVEL] --out DIR FILE...",
		Short: "Convert PyTorch profiler traces to OTLP and a Chrome trace",
		Long: "Convert PyTorch profiler (Kineto) traces, plain or compressed, to DIR/spans.json (OTLP JSON, one request per\n" +
			"line) and DIR/trace.json (one Chrome trace of all), through the same code as the kineto receiver and the\n" +
			"processors, and print where the GPU time went. Files that are no traces are refused by name; the others are\n" +
			"converted, and the exit code is 1.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd)
			defer stop()
			o.Files, o.Reader = args, readKineto(kinetoreceiver.Options{Detail: detail})
			err := convert.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
			if errors.Is(err, convert.ErrSomeFailed) {
				return errReported
			}
			return err
		},
	}
	cmd.Flags().TextVar(&detail, "detail", kinetoreceiver.DetailAuto, "auto, steps, annotations, operators or kernels")
	cmd.Flags().StringVar(&o.Out, "out", "", "folder for spans.json and trace.json (required)")
	cmd.Flags().IntVar(&o.Rows, "rows", 30, "operations in the table (0: all)")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

func readKineto(o kinetoreceiver.Options) convert.Reader {
	return func(ctx context.Context, path string, emit func(context.Context, ptrace.Traces) error) (convert.Result, error) {
		st, err := kinetoreceiver.ReadFile(ctx, path, o, emit)
		r := convert.Result{Spans: st.Spans, Cut: st.Cut, Remarks: st.Faults}
		for _, reason := range slices.Sorted(maps.Keys(st.Skipped)) {
			r.Remarks = append(r.Remarks, fmt.Sprintf("%d events left out: %s", st.Skipped[reason], reason))
		}
		return r, err
	}
}
