// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package benchmarks

import (
	"context"
	"flag"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

var costRounds = flag.Int("cost", 0, "rounds of TestCostOfAPipeline; 0: skip it")

// stage puts a component in front of the rest of a pipeline.
type stage func(*testing.T, *samplesHost, consumer.Traces) consumer.Traces

func processorStage(f processor.Factory, conf map[string]any) stage {
	return func(t *testing.T, h *samplesHost, next consumer.Traces) consumer.Traces {
		return newProcessorOn(t, h, f, conf, next)
	}
}

// connectorStage feeds the connector, then the rest: both read the same data, as behind the Collector's fan-out.
func connectorStage(f connector.Factory, conf map[string]any) stage {
	return func(t *testing.T, _ *samplesHost, next consumer.Traces) consumer.Traces {
		return tee(t, newConnector(t, f, conf), next)
	}
}

func pipeline(stages ...stage) stage {
	return func(t *testing.T, h *samplesHost, next consumer.Traces) consumer.Traces {
		for i := len(stages) - 1; i >= 0; i-- {
			next = stages[i](t, h, next)
		}
		return next
	}
}

// TestCostOfAPipeline prints what a span costs in each pipeline, and what of it is the components' own: the pipeline's cost
// minus that of the same pipeline without them, measured by turns in one process.
func TestCostOfAPipeline(t *testing.T) {
	if *costRounds == 0 {
		t.Skip("measures only with -cost ROUNDS")
	}
	join := processorStage(gpujoinprocessor.NewFactory(), map[string]any{"samples": "gpu_samples"})
	derive := processorStage(gpuderiveprocessor.NewFactory(), nil)
	metrics := connectorStage(gpumetricsconnector.NewFactory(), map[string]any{"flush_interval": "1h"})
	transform := func(statements []string) stage {
		return processorStage(transformprocessor.NewFactory(), map[string]any{"error_mode": "propagate", "trace_statements": toAny(statements)})
	}
	spanMetrics := connectorStage(spanmetricsconnector.NewFactory(), spanMetrics)
	cases := []struct {
		name  string
		build stage
	}{
		{"pass_through", pipeline()},
		{"gpu_derive", derive},
		{"transform", transform(divisions)},
		{"transform_fleet", transform(fleet())},
		{"gpu_metrics", metrics},
		{"span_metrics", spanMetrics},
		{"gpu_join", join},
		{"gpu_join+gpu_derive", pipeline(join, derive)},
		{"gpu_join+gpu_derive+gpu_metrics", pipeline(join, derive, metrics)},
		{"transform+span_metrics", pipeline(transform(divisions), spanMetrics)},
	}
	ends := []struct {
		name string
		out  consumer.ConsumeTracesFunc
	}{
		{"own (decoded, processed, dropped)", func(context.Context, ptrace.Traces) error { return nil }},
		{"OTLP in to OTLP out (decoded, processed, encoded)", func(_ context.Context, td ptrace.Traces) error {
			_, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			return err
		}},
	}
	wire := requests(t)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for _, end := range ends {
		best := make([]cost, len(cases))
		for i := range best {
			best[i].cpu = math.Inf(1)
		}
		for range *costRounds {
			for i, c := range cases {
				if x := measure(t, wire, 200, c.build, end.out); x.cpu < best[i].cpu {
					best[i] = x
				}
			}
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s, best of %d rounds, per span of 25 attributes\n%-34s%9s%9s%9s%9s%9s%9s\n", end.name, *costRounds,
			"", "cpu ns", "allocs", "bytes", "× pass", "own ns", "own allocs")
		for i, c := range cases {
			own := best[i].minus(best[0])
			fmt.Fprintf(&b, "%-34s%9.0f%9.1f%9.0f%9.2f%9.0f%9.1f\n", c.name, best[i].cpu, best[i].allocs, best[i].bytes, best[i].cpu/best[0].cpu, own.cpu, own.allocs)
		}
		t.Log(b.String())
	}
}
