// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

func newConvertCommand() *cobra.Command {
	var common kinetoreceiver.Options
	var compare bool
	o := convert.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use:   "convert [--detail LEVEL] [--html] --out DIR FILE|FOLDER...\n  otelcol-gpu convert --compare [--html] BEFORE AFTER",
		Short: "Convert PyTorch and Nsight Systems profiles to OTLP and a Chrome trace",
		Long: "Convert PyTorch profiler (Kineto) traces, plain or compressed, and SQLite exports of Nsight Systems to\n" +
			"DIR/spans.json (OTLP JSON, one request per line) and DIR/trace.json (one Chrome trace of all; files recorded more than\n" +
			"three months apart go to trace-1.json, trace-2.json …), through the same\n" +
			"code as the kineto and nsys receivers and the processors, and print where the GPU time went. The Chrome trace and the\n" +
			"table are of every activity; --detail is for the spans. A folder stands for all profiles below it (.json, .json.gz,\n" +
			".json.zst, .sqlite); a profile that is there twice counts once. Results replace those of an earlier run at the end.\n" +
			"Files that cannot be read are refused by name; the others are converted, and the exit code is 1. It is 3 where all were\n" +
			"read but of some only the beginning, because they are cut off or broken.\n\n" +
			"With --html there is DIR/report.html, too: one file that opens in a browser, with where the time went by step, findings,\n" +
			"the streams, roofline, kernels, operators, communication and ranks. DIR is otelgpu-report then, unless told.\n\n" +
			"With --compare what changed between two profiles is printed, by cause, operator and kernel, per step; and written to\n" +
			"DIR/compare.html with --html.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := interruptible(cmd,
				"results of an earlier run are as they were; what is beside them with a temporary name can be deleted")
			defer stop()
			if o.Out == "" && o.HTML {
				o.Out = "otelgpu-report"
			}
			if compare {
				html := ""
				if o.HTML {
					html = o.Out
				}
				return comparison(ctx, cmd.OutOrStdout(), args, common, o.Rows, html)
			}
			if o.Out == "" {
				return errors.New(`required flag(s) "out" not set`)
			}
			o.Files, o.Reader, o.Full = args, profileReader(common), common.Detail == kinetoreceiver.DetailKernels
			err := convert.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
			switch {
			case errors.Is(err, convert.ErrSomeFailed):
				return errReported
			case errors.Is(err, convert.ErrSomePartial):
				return errPartial
			}
			return err
		},
	}
	cmd.Flags().TextVar(&common.Detail, "detail", kinetoreceiver.DetailAuto,
		"auto, steps, annotations, operators or kernels")
	cmd.Flags().TextVar(&common.Extent, "extent", kinetoreceiver.ExtentAll,
		"activities that verdicts are of: all, steps or steps_but_last")
	cmd.Flags().StringVar(&common.JobID, "job-id", "",
		"gpu.job.id of files that have none: the ranks of one run are linked by it")
	cmd.Flags().StringVar(&common.Device, "device", "",
		"model of devices that a file does not name, as the driver calls it: verdicts compare with its peak (docs/peaks.md)")
	cmd.Flags().StringSliceVar(&common.Captures, "captures", nil,
		"traces, or folders of them, in which graphs were captured that the files launch: kernels of graphs get their operators")
	cmd.Flags().StringVar(&o.Out, "out", "", "folder for the results (required, but with --html)")
	cmd.Flags().IntVar(&o.Rows, "rows", 30, "operations in the table (0: all)")
	cmd.Flags().BoolVar(&o.HTML, "html", false, "write the report as a page, too: one file, which needs no network")
	cmd.Flags().BoolVar(&compare, "compare", false, "print what changed from the first profile to the second")
	return cmd
}

// partial is remarked of files that were made of a profile, at whatever detail.
const partial = "spans as they were written: the table has only activities that have a span of their own"

// profileReader reads a file by what it begins with: a database is an export of Nsight Systems, all else must be a
// trace.
func profileReader(o kinetoreceiver.Options) convert.Reader {
	asked := o.Detail
	o.Partial, o.Version = true, buildInfo().Version
	return func(ctx context.Context, path string, all bool, emit convert.Emit) (convert.Result, error) {
		o := o
		if all {
			o.Detail = kinetoreceiver.DetailKernels
		}
		head, _ := profilefile.Head(path) // what cannot be read is left to the reader, which says why
		if profilefile.IsSQLite(head) {
			st, err := nsysreceiver.ReadFile(ctx, path, o, emit)
			return result(st.Spans, st.Cut, st.Faults, st.Skipped, "rows", st.Devices, asked), err
		}
		st, err := kinetoreceiver.ReadFile(ctx, path, o, emit)
		if st.Restored > 0 && len(st.Devices) > 0 {
			st.Faults = append(st.Faults, partial)
		}
		r := result(st.Spans, st.Cut, st.Faults, st.Skipped, "events", st.Devices, asked)
		r.Partial = st.Partial
		return r, err
	}
}
