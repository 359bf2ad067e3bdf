// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/consumer"
	"go.uber.org/zap"
	"golang.org/x/term"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/demo"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/receiver/gpucapturereceiver"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

func newCaptureCommand() *cobra.Command {
	cfg := gpucapturereceiver.NewFactory().CreateDefaultConfig().(*gpucapturereceiver.Config)
	cfg.Window, cfg.Budget = 500*time.Millisecond, 1_000_000
	cfg.Spans.Detail, cfg.Spans.Attributes = emit.LevelKernels, spanfacts.Full
	o := convert.Options{Info: buildInfo(), Factories: factories, Full: true}
	cmd := &cobra.Command{
		Use:   "capture [--for 500ms] [--out DIR] [--html] PID",
		Short: "Record the GPU activity of a running CUDA process",
		Long: `Record the kernels, copies and memsets of a running CUDA process for a short time, write them to
DIR/spans.json and DIR/trace.json, and print where the GPU time went. Nothing is recorded outside this window.

Start the process with CUDA_INJECTION64_PATH=/path/to/libotelgpu_capture.so ("make capture" builds the library) and with
OTELGPU_CAPTURE_DIR set to an existing directory for its ring buffer (default /dev/shm/otelgpu).`,
		Args: takes(1, 1, "capture takes one process ID (otelcol-gpu capture PID)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return fmt.Errorf("%q is not a process ID", args[0])
			}
			if err := byFlag(cfg.Validate(), "`window`", "--for", "`budget`", "--budget", "`folder`", "--folder"); err != nil {
				return err
			}
			o.Out = cmp.Or(o.Out, fmt.Sprintf("capture-%d", pid))
			ctx, stop := interruptible(cmd, "nothing is written")
			defer stop()
			o.Process, o.Terminal = fmt.Sprintf("process %d", pid), terminal(os.Stdout)
			o.Reader = func(ctx context.Context, _ string, to convert.Outputs) (convert.Result, error) {
				cfg.Spans.Observe = to.Observe
				return capture(ctx, pid, cfg, to.Files)
			}
			return convert.Run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	cfg.Every = 0
	cmd.Flags().DurationVar(&cfg.Window, "for", cfg.Window, "how long to record (at most 1m)")
	cmd.Flags().IntVar(&cfg.Budget, "budget", cfg.Budget, "maximum records per second of recording")
	cmd.Flags().StringVar(&cfg.Folder, "folder", cfg.Folder, "OTELGPU_CAPTURE_DIR of the process")
	cmd.Flags().StringVar(&o.Out, "out", "", "output directory (default capture-PID)")
	cmd.Flags().BoolVar(&o.HTML, "html", false, "also write DIR/report.html, a self-contained page")
	cmd.Flags().IntVar(&o.Rows, "rows", 30, "maximum operations in the table (0 = all)")
	return cmd
}

func capture(
	ctx context.Context, pid int, cfg *gpucapturereceiver.Config, emit consumer.ConsumeTracesFunc,
) (convert.Result, error) {
	res, err := gpucapturereceiver.Capture(ctx, pid, cfg, emit)
	if err != nil {
		return convert.Result{}, err
	}
	if res.Message != "" {
		return convert.Result{}, errors.New(res.Message)
	}
	r := (&profile{Stats: res.Stats}).result(kinetoreceiver.DetailAuto, true)
	if res.Outcome == "budget" {
		r.Remarks = append(r.Remarks, "recording stopped early: record budget exhausted (raise --budget)")
	}
	if res.Remark != "" {
		r.Remarks = append(r.Remarks, res.Remark)
	}
	for _, reason := range slices.Sorted(maps.Keys(res.Dropped)) {
		r.Remarks = append(r.Remarks, fmt.Sprintf("%d records incomplete: %s", res.Dropped[reason], reason))
	}
	return r, nil
}

func newRecordCommand() *cobra.Command {
	cfg := gpureceiver.NewFactory().CreateDefaultConfig().(*gpureceiver.Config)
	var out string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "record --out FILE",
		Short: "Record device samples to a file that the gpu receiver replays",
		Long: "Record device samples to a file until Ctrl-C, or for --duration. The gpu receiver replays the file on any\n" +
			"machine (source: replay).",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return errors.New("no output file (set --out FILE)")
			}
			ctx, stop := interruptible(cmd, "no recording; "+out+".partial-* can be deleted")
			defer stop()
			return record(ctx, cmd, cfg, out, duration)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file to write (required)")
	f.StringVar(&cfg.Source, "source", cfg.Source, "sample source: auto, dcgm, nvml or simulated")
	f.StringVar(&cfg.DCGM.Endpoint, "endpoint", cfg.DCGM.Endpoint, "DCGM host engine: host:port or unix:///path")
	f.DurationVar(&cfg.SamplingInterval, "interval", cfg.SamplingInterval, "sampling interval")
	f.DurationVar(&duration, "duration", 0, "how long to record (0 = until Ctrl-C)")
	return cmd
}

// record writes to a temporary name and renames, so that a file with the final name is always
// complete.
func record(
	ctx context.Context, cmd *cobra.Command, cfg *gpureceiver.Config, out string, duration time.Duration,
) (err error) {
	if err := byFlag(cfg.Validate(), "`source`", "--source", "`sampling_interval`", "--interval", "`dcgm::endpoint`",
		"--endpoint"); err != nil {
		return err
	}
	if duration < 0 {
		return fmt.Errorf("--duration must not be negative, found %s", duration)
	}
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	logger, err := zap.NewDevelopment(zap.WithCaller(false), zap.AddStacktrace(zap.PanicLevel))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), filepath.Base(out)+".partial-*")
	if err != nil {
		return fmt.Errorf("cannot write the recording: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	summary, err := gpureceiver.Record(ctx, gpureceiver.RecordSettings{Config: cfg, Logger: logger}, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if summary.Lines == 0 {
		return errors.New("nothing was recorded: no device returned a sample in that time")
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(),
		"%s: %d samples and events of %d devices from %s\nreplay: receivers: {gpu: {source: replay, replay: {file: %s}}}\n",
		out, summary.Lines, summary.Devices, summary.Source, out)
	return nil
}

func newDemoCommand() *cobra.Command {
	o := demo.Options{Info: buildInfo(), Factories: factories}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a simulated GPU workload through the pipelines and show the results",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd, "the files in "+o.Out+" are not complete")
			defer stop()
			o.Terminal = terminal(os.Stdout)
			return demo.Run(ctx, cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().DurationVar(&o.Duration, "duration", 30*time.Second, "how long to run the workload")
	cmd.Flags().BoolVar(&o.HTML, "html", false, "also write report.html, a self-contained page")
	cmd.Flags().StringVar(&o.Out, "out", "otelgpu-demo", "output directory; empty for none")
	cmd.Flags().BoolVar(&o.OTLP, "files", false, "also write spans.json and metrics.json (OTLP), about 1.8 MB per second")
	cmd.Flags().StringVar(&o.Send, "otlp", "", "also send the spans to host:port (OTLP/gRPC) or http://host:port")
	return cmd
}

// terminal returns f if it is a terminal that can move the cursor, otherwise nil.
func terminal(f *os.File) *os.File {
	if os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}
