// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

func newCheckCommand() *cobra.Command {
	var listen string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "check FILE|-... | --listen [HOST:PORT]",
		Short: "Hold OTLP of any emitter against the registry of names",
		Long: "Hold spans, metrics and log records against the registry of names (docs/semconv.md): names, types, units, values of\n" +
			"enumerations, what is required, and what cannot be. FILE is OTLP in JSON, one request after the other, as the\n" +
			"Collector's file exporter and \"otelcol-gpu convert\" write it; - is standard input. With --listen it takes OTLP by\n" +
			"gRPC at HOST:PORT and by HTTP at the next port, until Ctrl-C or for the time of --for; a complaint is printed when it\n" +
			"is met first. The exit code is 1 where there are complaints or something cannot be read.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			report := &conformance.Report{Strict: true}
			var err error
			switch {
			case listen != "" && len(args) > 0:
				return fmt.Errorf("cannot check %q while listening (leave out either)", args[0])
			case listen != "":
				report.Found = func(c *conformance.Complaint) { fmt.Fprintln(out, c) }
				err = checkListen(cmd, listen, limit, report)
			case len(args) == 0:
				return errors.New("nothing to check (name a file, - for standard input, or --listen)")
			default:
				err = checkFiles(cmd.InOrStdin(), args, report)
				for _, c := range report.Complaints() {
					fmt.Fprintln(out, c)
				}
			}
			report.Summary(out)
			if err == nil && len(report.Complaints()) > 0 {
				err = errReported
			}
			return err
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address of a live OTLP port")
	cmd.Flags().Lookup("listen").NoOptDefVal = "127.0.0.1:4317"
	cmd.Flags().DurationVar(&limit, "for", 0, "how long to listen (0: until Ctrl-C)")
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

// checkListen checks what comes to an OTLP receiver.
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
	stopReceiver, err := startOTLP(ctx, address, web, report)
	if err != nil {
		return fmt.Errorf("cannot listen at %s and %s: %w", address, web, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "listening for OTLP: gRPC at %s, HTTP at %s\n", address, web)
	<-ctx.Done()
	return stopReceiver()
}

// noExtensions is the host of a receiver that needs none.
type noExtensions struct{}

func (noExtensions) GetExtensions() map[component.ID]component.Component { return nil }

// startOTLP starts the OTLP receiver with the report as its pipeline.
func startOTLP(ctx context.Context, grpc, web string, report *conformance.Report) (stop func() error, err error) {
	factory := otlpreceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{
		"grpc": map[string]any{"endpoint": grpc}, "http": map[string]any{"endpoint": web},
	}}).Unmarshal(cfg); err != nil {
		return nil, err
	}
	set := receiver.Settings{
		ID: component.NewID(factory.Type()), BuildInfo: buildInfo(),
		TelemetrySettings: component.TelemetrySettings{
			Logger: zap.NewNop(), TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(),
		},
	}
	var mu sync.Mutex
	traces, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error {
		mu.Lock()
		defer mu.Unlock()
		report.Traces(td)
		return nil
	})
	if err != nil {
		return nil, err
	}
	metrics, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
		mu.Lock()
		defer mu.Unlock()
		report.Metrics(md)
		return nil
	})
	if err != nil {
		return nil, err
	}
	logs, err := consumer.NewLogs(func(_ context.Context, ld plog.Logs) error {
		mu.Lock()
		defer mu.Unlock()
		report.Logs(ld)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t, errT := factory.CreateTraces(ctx, set, cfg, traces)
	m, errM := factory.CreateMetrics(ctx, set, cfg, metrics)
	l, errL := factory.CreateLogs(ctx, set, cfg, logs)
	if err := cmp.Or(errT, errM, errL); err != nil {
		return nil, err
	}
	// The three are faces of one receiver: each is started and stopped, as the Collector does.
	all := []component.Component{t, m, l}
	for _, c := range all {
		if err := c.Start(ctx, noExtensions{}); err != nil {
			return nil, err
		}
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		var errs []error
		for _, c := range all {
			errs = append(errs, c.Shutdown(ctx))
		}
		return errors.Join(errs...)
	}, nil
}
