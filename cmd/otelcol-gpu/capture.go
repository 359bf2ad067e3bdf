// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

func newCaptureCommand() *cobra.Command {
	cfg := gpucapturereceiver.NewFactory().CreateDefaultConfig().(*gpucapturereceiver.Config)
	cfg.Window, cfg.Budget = 500*time.Millisecond, 1_000_000
	cfg.Spans.Detail = gputrace.LevelKernels
	o := convert.Options{Info: buildInfo(), Factories: factories, Full: true}
	cmd := &cobra.Command{
		Use:   "capture [--for 500ms] [--out DIR] [--html] PID",
		Short: "Record what a running CUDA process does on the GPU, now",
		Long: "Record the kernels, copies and memsets of a running CUDA process for a moment, write them as convert does\n" +
			"(DIR/spans.json, DIR/trace.json) and print where the GPU time went. The process must have been started with\n" +
			"CUDA_INJECTION64_PATH=/path/to/libotelgpu_capture.so (\"make capture\" builds it) and with a folder for its ring,\n" +
			"OTELGPU_CAPTURE_DIR (/dev/shm/otelgpu by default; make it before). Nothing is recorded before and after.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return fmt.Errorf("%q is no process id", args[0])
			}
			if err := cfg.Validate(); err != nil {
				return err
			}
			if o.Out == "" {
				o.Out = fmt.Sprintf("capture-%d", pid)
			}
			ctx, stop := interruptible(cmd, "nothing is written")
			defer stop()
			o.Process = fmt.Sprintf("process %d", pid)
			o.Reader = func(ctx context.Context, _ string, _ bool, emit convert.Emit) (convert.Result, error) {
				return capture(ctx, pid, cfg, emit)
			}
			err = convert.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
			if errors.Is(err, convert.ErrSomeFailed) {
				return errReported
			}
			return err
		},
	}
	cfg.Every = 0
	cmd.Flags().DurationVar(&cfg.Window, "for", cfg.Window, "how long to record, at most 1m")
	cmd.Flags().IntVar(&cfg.Budget, "budget", cfg.Budget, "most records per second; at more the recording ends early")
	cmd.Flags().StringVar(&cfg.Folder, "folder", cfg.Folder, "folder of the rings, OTELGPU_CAPTURE_DIR of the process")
	cmd.Flags().StringVar(&o.Out, "out", "", "folder for spans.json and trace.json (default capture-PID)")
	cmd.Flags().BoolVar(&o.HTML, "html", false, "write DIR/report.html, too: one page that needs no network")
	cmd.Flags().IntVar(&o.Rows, "rows", 30, "operations in the table (0: all)")
	return cmd
}

func capture(ctx context.Context, pid int, cfg *gpucapturereceiver.Config, emit convert.Emit) (convert.Result, error) {
	res, err := gpucapturereceiver.Capture(ctx, pid, cfg, emit)
	if err != nil {
		return convert.Result{}, err
	}
	if res.Message != "" {
		return convert.Result{}, errors.New(res.Message)
	}
	r := result(res.Spans, res.Cut, nil, nil, "", res.Devices, nil, kinetoreceiver.DetailAuto)
	if res.Outcome == "budget" {
		r.Remarks = append(r.Remarks, "ended early: it had as many records as the budget allows (--budget)")
	}
	if res.Remark != "" {
		r.Remarks = append(r.Remarks, res.Remark)
	}
	for _, reason := range slices.Sorted(maps.Keys(res.Dropped)) {
		r.Remarks = append(r.Remarks, fmt.Sprintf("%d records lost something: %s", res.Dropped[reason], reason))
	}
	return r, nil
}
