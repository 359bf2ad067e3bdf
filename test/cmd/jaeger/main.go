// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command jaeger builds the Jaeger that the end-to-end tests use and runs it until interrupted, in
// memory, on loopback. OTLP gRPC is on 14317, where the jaeger pipeline of otelcol-gpu sends to; UI
// and API are on the usual 16686.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/otelgpu/otelgpu/test/internal/jaeger"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "jaeger:", err)
		os.Exit(1)
	}
}

func run() error {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	fmt.Printf("building Jaeger %s (minutes the first time) ...\n", jaeger.Version)
	path, err := jaeger.Build(stop)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "jaeger")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	j, err := jaeger.Start(context.WithoutCancel(stop), path, dir, jaeger.Addresses{
		OTLPGRPC: "127.0.0.1:14317", OTLPHTTP: "127.0.0.1:14318", Query: "127.0.0.1:16686", QueryGRPC: "127.0.0.1:16685",
	})
	if err != nil {
		return err
	}
	fmt.Printf("API on http://%s/api/v3 (without the UI, which only Jaeger's releases contain), OTLP gRPC on %s; now run "+
		"`otelcol-gpu demo --otlp %[2]s` or `otelcol-gpu --config jaeger`\n", j.Query, j.OTLPGRPC)
	<-stop.Done()
	return j.Stop(10 * time.Second)
}
