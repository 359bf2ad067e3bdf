// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ddsketch_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/report/ddsketch"
)

// Quantiles of all runs, within 1 %.
func ExampleNew() {
	ctx := context.Background()
	prof, _ := gpuspan.New(nil, gpuspan.WithReport(report.WithSketch(ddsketch.New)), gpuspan.WithLogger(slog.New(slog.DiscardHandler)))
	step, server := gpuspan.NewOperation("step"), prof.Stream(0, "server")
	for i := range 10_000 {
		step.RecordMeasured(ctx, server, time.Now(), time.Duration(i+1)*time.Microsecond, gpuspan.Work{})
		if i%100 == 99 { // as a running program has time to read sections back
			_ = prof.Flush(ctx)
		}
	}
	p99 := prof.Snapshot().Operations[0].All.Duration.P99
	fmt.Println("within 1 % of 9.9ms:", (p99-9900*time.Microsecond).Abs() <= 99*time.Microsecond)
	_ = prof.Shutdown(ctx)
	// Output: within 1 % of 9.9ms: true
}
