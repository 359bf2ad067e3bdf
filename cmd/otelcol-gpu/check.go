// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/otelcol"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
	"github.com/otelgpu/otelgpu/internal/conformance"
)

const listenDefault = "127.0.0.1:4317"

func newCheckCommand() *cobra.Command {
	var listen string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "check FILE|-... | --listen [HOST:PORT]",
		Short: "Validate OTLP data against the semantic conventions of GPU work",
		Long: `Validate spans, metrics and log records against the semantic conventions (docs/semconv): names, types,
units, enumeration values, required attributes, and impossible values.

FILE contains OTLP JSON, one request per line, as written by the Collector's file exporter and by "otelcol-gpu convert".
Use - for standard input. With --listen, the command receives OTLP over gRPC at HOST:PORT and over HTTP at the next
port until Ctrl-C, or for the duration set by --for. Each kind of violation is printed once, when it first occurs.

The exit code is 1 if there are violations or if the input cannot be read.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			report := &conformance.Report{Strict: true}
			if len(args) == 1 && listen == listenDefault {
				if _, _, err := net.SplitHostPort(args[0]); err == nil {
					listen, args = args[0], nil // --listen HOST:PORT, which the flag's parser takes for a file
				}
			}
			var err error
			switch {
			case listen != "" && len(args) > 0:
				return fmt.Errorf("cannot check %q while listening (use either FILE or --listen)", args[0])
			case listen != "":
				report.Found = func(c *conformance.Violation) { fmt.Fprintln(out, c) }
				err = checkListen(cmd, listen, limit, report)
			case len(args) == 0:
				return errors.New("nothing to check (specify a file, - for standard input, or --listen)")
			default:
				err = checkFiles(cmd.InOrStdin(), args, report)
				for _, c := range report.Violations() {
					fmt.Fprintln(out, c)
				}
			}
			if err == nil || report.Spans+report.Points+report.Records > 0 {
				report.Summary(out)
			}
			if err == nil && len(report.Violations()) > 0 {
				err = errReported
			}
			return err
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "receive OTLP at this address instead of reading files")
	cmd.Flags().Lookup("listen").NoOptDefVal = listenDefault
	cmd.Flags().DurationVar(&limit, "for", 0, "how long to listen (0 = until Ctrl-C)")
	return cmd
}

// checkFiles goes on with the other files when one cannot be read.
func checkFiles(stdin io.Reader, paths []string, report *conformance.Report) error {
	var errs []error
	for _, path := range paths {
		if path == "-" {
			errs = append(errs, report.JSON("standard input", stdin))
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot open %q: %w", path, errors.Unwrap(err)))
			continue
		}
		errs = append(errs, report.JSON(path, f))
		_ = f.Close()
	}
	return errors.Join(errs...)
}

// checkListen validates the data that an OTLP receiver accepts.
func checkListen(cmd *cobra.Command, address string, limit time.Duration, report *conformance.Report) error {
	ctx, stop := interruptible(cmd, "the check is not complete")
	defer stop()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("`--listen` must be HOST:PORT, found %q", address)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || number > 65534 {
		return fmt.Errorf("`--listen` must have a port of 1 to 65534, found %q", port)
	}
	web := net.JoinHostPort(host, strconv.FormatUint(number+1, 10))
	p, err := pipeline.Start(ctx, buildInfo(), func() (otelcol.Factories, error) {
		f, err := factories()
		(&pipeline.Sink{Traces: report.Traces, Metrics: report.Metrics, Logs: report.Logs}).AddTo(f.Exporters)
		return f, err
	}, fmt.Sprintf(checkPipeline, pipeline.Quote(address), pipeline.Quote(web)))
	// The receiver listens shortly before the pipeline reports that it runs: a signal received in
	// between is not lost.
	if heard := ctx.Err() != nil && report.Spans+report.Points+report.Records > 0; heard && p != nil {
		return p.Stop()
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("cannot listen at %s and %s: the port is in use (set --listen HOST:PORT)", address, web)
	}
	if err != nil {
		return fmt.Errorf("cannot listen at %s and %s: %w", address, web, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "listening for OTLP: gRPC at %s, HTTP at %s\n", address, web)
	select {
	case <-ctx.Done():
	case <-p.Done():
	}
	return p.Stop()
}

const checkPipeline = `
receivers: {otlp: {protocols: {grpc: {endpoint: %s}, http: {endpoint: %s}}}}
exporters: {sink: {}}
service:
  telemetry: {logs: {level: fatal}, metrics: {level: none, readers: []}}
  pipelines:
    traces: {receivers: [otlp], exporters: [sink]}
    metrics: {receivers: [otlp], exporters: [sink]}
    logs: {receivers: [otlp], exporters: [sink]}
`
