// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package benchmarks

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
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

var (
	costRounds = flag.Int("cost", 0, "rounds of the tests of costs; 0: skip them")
	costOf     = flag.String("cost-of", "",
		"measure only passing through and pipelines whose names match this regular expression")
	costWide = flag.Bool("cost-wide", false, "send spans of 25 attributes: each states its device and how it was timed")
)

// stage puts a component in front of the rest of a pipeline.
type stage func(*testing.T, *samplesHost, consumer.Traces) consumer.Traces

func processorStage(f processor.Factory, conf map[string]any) stage {
	return func(t *testing.T, h *samplesHost, next consumer.Traces) consumer.Traces {
		return newProcessorOn(t, h, f, conf, next)
	}
}

// connectorStage feeds the connector, then the rest: both read the same data, as behind the
// Collector's fan-out.
func connectorStage(f connector.Factory, conf map[string]any) stage {
	return func(t *testing.T, _ *samplesHost, next consumer.Traces) consumer.Traces {
		return tee(t, newConnector(t, f, conf), next)
	}
}

func pipeline(stages ...stage) stage {
	return func(t *testing.T, h *samplesHost, next consumer.Traces) consumer.Traces {
		for _, s := range slices.Backward(stages) {
			next = s(t, h, next)
		}
		return next
	}
}

func joinStage(level string) stage {
	return processorStage(gpujoinprocessor.NewFactory(), map[string]any{"samples": "gpu_samples", "attributes": level})
}

func deriveStage(level string) stage {
	return processorStage(gpuderiveprocessor.NewFactory(), map[string]any{"attributes": level})
}

func metricsStage() stage {
	return connectorStage(gpumetricsconnector.NewFactory(), map[string]any{"flush_interval": "1h"})
}

func transformStage(statements []string) stage {
	return processorStage(transformprocessor.NewFactory(), map[string]any{
		"error_mode":       "propagate",
		"trace_statements": toAny(statements),
	})
}

func spanMetricsStage() stage {
	return connectorStage(spanmetricsconnector.NewFactory(), spanMetrics)
}

type pipelineCase struct {
	name  string
	build stage
}

// chosen returns the pipelines that -cost-of names, and the pass-through pipeline that they are
// compared with.
func chosen(cases []pipelineCase) []pipelineCase {
	names := regexp.MustCompile(*costOf)
	return slices.DeleteFunc(cases, func(c pipelineCase) bool { return c.name != pass && !names.MatchString(c.name) })
}

const (
	pass = "pass_through"
	all  = "gpu_join+gpu_derive+gpu_metrics"
)

// TestCostOfAPipeline prints the cost of a span in each pipeline, and the components' part: the
// cost of the pipeline minus the cost of the same pipeline without them, measured alternately in
// one process.
func TestCostOfAPipeline(t *testing.T) {
	if *costRounds == 0 {
		t.Skip("measures only with -cost ROUNDS")
	}
	cases := []pipelineCase{
		{pass, pipeline()},
		{"gpu_derive", deriveStage(full)},
		{"gpu_derive lean", deriveStage(lean)},
		{"its puts alone", putStage(derived, 13)},
		{"transform", transformStage(divisions)},
		{"transform_fleet", transformStage(fleet())},
		{"gpu_metrics", metricsStage()},
		{"span_metrics", spanMetricsStage()},
		{"gpu_join", joinStage(full)},
		{"gpu_join lean", joinStage(lean)},
		{"its queue and puts alone", pipeline(holdStage, buildStage(joined, 16))},
		{all, pipeline(joinStage(full), deriveStage(full), metricsStage())},
		{all + " lean", pipeline(joinStage(lean), deriveStage(lean), metricsStage())},
		{"queue alone", holdStage},
		{"queue, reads and puts alone", floor()},
		{"transform+span_metrics", pipeline(transformStage(divisions), spanMetricsStage())},
	}
	ends := []struct {
		name string
		out  consumer.ConsumeTracesFunc
	}{
		{"decoded, processed, dropped", func(context.Context, ptrace.Traces) error { return nil }},
		{"decoded, processed, encoded (OTLP in to OTLP out)", func(_ context.Context, td ptrace.Traces) error {
			_, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			return err
		}},
	}
	cases = chosen(cases)
	wire := requests(t)
	for _, end := range ends {
		best := map[string]cost{}
		for range *costRounds {
			for _, c := range cases {
				if x := measure(t, wire, 200, c.build, end.out); best[c.name].cpu == 0 || x.cpu < best[c.name].cpu {
					best[c.name] = x
				}
			}
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s, best of %d rounds, per span of %d attributes\n%-40s%9s%9s%9s%10s%9s\n", end.name, *costRounds,
			attributesOf(t, wire), "", "cpu ns", "× pass", "own ns", "own B", "allocs")
		own := func(name string) float64 { return best[name].minus(best[pass]).cpu }
		for _, c := range cases {
			x := best[c.name].minus(best[pass])
			fmt.Fprintf(&b, "%-40s%9.0f%9.2f%9.0f%10.0f%9.1f\n", c.name, best[c.name].cpu, best[c.name].cpu/best[pass].cpu,
				x.cpu, x.bytes, x.allocs)
		}
		fmt.Fprintf(&b, "transform ÷ gpu_derive %.1f, transform_fleet ÷ gpu_derive %.1f, span_metrics ÷ gpu_metrics %.1f\n",
			own("transform")/own("gpu_derive"), own("transform_fleet")/own("gpu_derive"), own("span_metrics")/own("gpu_metrics"))
		fmt.Fprintf(&b,
			"join, derive and metrics: %.0f ns = %.0f queue + %.0f reads and puts + %.0f beyond; %.2f times the floor\n",
			own(all),
			own("queue alone"), own("queue, reads and puts alone")-own("queue alone"),
			own(all)-own("queue, reads and puts alone"),
			own(all)/own("queue, reads and puts alone"))
		t.Log(b.String())
	}
}
