// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
)

type recordOptions struct {
	out      string
	source   string
	endpoint string
	interval time.Duration
	duration time.Duration
}

func newRecordCommand() *cobra.Command {
	var o recordOptions
	cmd := &cobra.Command{
		Use:   "record --out FILE",
		Short: "Record device samples to a file that the gpu receiver replays",
		Long: "Record device samples to a file, until Ctrl-C or the end of --duration. The gpu receiver plays it with\n" +
			"source: replay, on any machine.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd, "no recording; "+o.out+".partial-* can be deleted")
			defer stop()
			return record(ctx, cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "file to write (required)")
	f.StringVar(&o.source, "source", "auto", "auto, dcgm, nvml or simulated")
	f.StringVar(&o.endpoint, "endpoint", "localhost:5555", "DCGM host engine: host:port or unix:///path")
	f.DurationVar(&o.interval, "interval", 100*time.Millisecond, "time between two samples")
	f.DurationVar(&o.duration, "duration", 0, "how long to record (0: until Ctrl-C)")
	_ = cmd.MarkFlagRequired("out")
	return cmd
}

// record writes beside the final name and renames, so that a file of that name is always whole.
func record(ctx context.Context, cmd *cobra.Command, o recordOptions) (err error) {
	if o.duration < 0 {
		return fmt.Errorf("--duration must not be negative, found %s", o.duration)
	}
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	cfg := gpureceiver.NewFactory().CreateDefaultConfig().(*gpureceiver.Config)
	cfg.Source, cfg.SamplingInterval, cfg.DCGM.Endpoint = o.source, o.interval, o.endpoint
	logger, err := zap.NewDevelopment(zap.WithCaller(false), zap.AddStacktrace(zap.PanicLevel))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(o.out), filepath.Base(o.out)+".partial-*")
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
		return errors.New("nothing was recorded: no device gave a sample in that time")
	}
	if err := os.Rename(f.Name(), o.out); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(),
		"%s: %d samples and events of %d devices from %s\nplay it: receivers: {gpu: {source: replay, replay: {file: %s}}}\n",
		o.out, summary.Lines, summary.Devices, summary.Source, o.out)
	return nil
}
