// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
)

// divisions are the statements that give a section the same attributes as gpu_derive, for one
// model, whose peaks they contain.
var divisions = []string{
	`set(span.attributes["gpu.io.rate"], (Double(span.attributes["gpu.io.read.size"]) + Double(span.attributes["gpu.io.write.size"])) / span.attributes["gpu.duration"]) where span.attributes["gpu.io.read.size"] != nil and span.attributes["gpu.duration"] != nil`,
	`set(span.attributes["gpu.io.read.rate"], Double(span.attributes["gpu.io.read.size"]) / span.attributes["gpu.duration"]) where span.attributes["gpu.io.read.size"] != nil and span.attributes["gpu.duration"] != nil`,
	`set(span.attributes["gpu.io.write.rate"], Double(span.attributes["gpu.io.write.size"]) / span.attributes["gpu.duration"]) where span.attributes["gpu.io.write.size"] != nil and span.attributes["gpu.duration"] != nil`,
	`set(span.attributes["gpu.io.utilization"], span.attributes["gpu.io.rate"] / 3350000000000.0) where span.attributes["gpu.io.rate"] != nil`,
	`set(span.attributes["gpu.flop.rate"], span.attributes["gpu.flop.count"] / span.attributes["gpu.duration"]) where span.attributes["gpu.flop.count"] != nil and span.attributes["gpu.duration"] != nil`,
	`set(span.attributes["gpu.flop.utilization"], span.attributes["gpu.flop.rate"] / 989500000000000.0) where span.attributes["gpu.flop.rate"] != nil and span.attributes["gpu.flop.precision"] == "bf16"`,
	`set(span.attributes["gpu.arithmetic_intensity"], span.attributes["gpu.flop.count"] / (Double(span.attributes["gpu.io.read.size"]) + Double(span.attributes["gpu.io.write.size"]))) where span.attributes["gpu.flop.count"] != nil and span.attributes["gpu.io.read.size"] != nil`,
	`set(span.attributes["gpu.operation.item.rate"], Double(span.attributes["gpu.operation.items"]) / span.attributes["gpu.duration"]) where span.attributes["gpu.operation.items"] != nil and span.attributes["gpu.duration"] != nil`,
	`set(span.attributes["gpu.roofline.bound"], "compute") where span.attributes["gpu.arithmetic_intensity"] >= 295.3731343283582`,
	`set(span.attributes["gpu.roofline.bound"], "memory") where span.attributes["gpu.arithmetic_intensity"] < 295.3731343283582`,
	`set(span.attributes["gpu.roofline.utilization"], span.attributes["gpu.io.utilization"]) where span.attributes["gpu.roofline.bound"] == "memory"`,
	`set(span.attributes["gpu.roofline.utilization"], span.attributes["gpu.flop.utilization"]) where span.attributes["gpu.roofline.bound"] == "compute"`,
	`set(span.attributes["gpu.peak.source"], "config") where span.attributes["gpu.io.utilization"] != nil`,
	`set(span.attributes["gpu.declaration.status"], "ok") where span.attributes["gpu.io.utilization"] <= 1.0`,
	`set(span.attributes["gpu.rate.status"], "ok") where span.attributes["gpu.duration"] >= 0.00002`,
}

// fleet returns the divisions for three models and four precisions, which first look peaks up in
// the cache.
func fleet() (out []string) {
	for _, m := range []struct {
		model string
		mem   string
		flops map[string]string
	}{
		{"NVIDIA H100 80GB HBM3", "3350000000000.0", map[string]string{
			"bf16": "989500000000000.0",
			"fp16": "989500000000000.0", "fp8": "1979000000000000.0", "fp32": "67000000000000.0",
		}},
		{"NVIDIA A100-SXM4-80GB", "2039000000000.0", map[string]string{
			"bf16": "312000000000000.0",
			"fp16": "312000000000000.0", "tf32": "156000000000000.0", "fp32": "19500000000000.0",
		}},
		{"NVIDIA L4", "300000000000.0", map[string]string{
			"bf16": "121000000000000.0", "fp16": "121000000000000.0",
			"fp8": "242500000000000.0", "fp32": "30300000000000.0",
		}},
	} {
		out = append(out, fmt.Sprintf(`set(span.cache["memory"], %s) where scope.attributes["hw.model"] == %q`, m.mem,
			m.model))
		for _, precision := range slices.Sorted(maps.Keys(m.flops)) {
			out = append(out, fmt.Sprintf(
				`set(span.cache["flops"], %s) where scope.attributes["hw.model"] == %q and span.attributes["gpu.flop.precision"] == %q`, m.flops[precision], m.model, precision))
		}
	}
	peaks := strings.NewReplacer(
		`/ 3350000000000.0) where`, `/ span.cache["memory"]) where span.cache["memory"] != nil and`,
		`/ 989500000000000.0) where`, `/ span.cache["flops"]) where span.cache["flops"] != nil and`,
		` and span.attributes["gpu.flop.precision"] == "bf16"`, ``,
		`>= 295.3731343283582`, `>= span.cache["flops"] / span.cache["memory"]`,
		`< 295.3731343283582`, `< span.cache["flops"] / span.cache["memory"]`)
	for _, d := range divisions {
		out = append(out, peaks.Replace(d))
	}
	return out
}

func newProcessor(tb testing.TB, f processor.Factory, conf map[string]any, next consumer.Traces) processor.Traces {
	tb.Helper()
	return newProcessorOn(tb, componenttest.NewNopHost(), f, conf, next)
}

func newProcessorOn(tb testing.TB, host component.Host, f processor.Factory, conf map[string]any,
	next consumer.Traces,
) processor.Traces {
	tb.Helper()
	cfg := f.CreateDefaultConfig()
	require.NoError(tb, confmap.NewFromStringMap(conf).Unmarshal(cfg))
	require.NoError(tb, confmap.Validate(cfg))
	p, err := f.CreateTraces(context.Background(), processortest.NewNopSettings(f.Type()), cfg, next)
	require.NoError(tb, err)
	require.NoError(tb, p.Start(context.Background(), host))
	tb.Cleanup(func() { require.NoError(tb, p.Shutdown(context.Background())) })
	return p
}

func derivers(tb testing.TB, next consumer.Traces) map[string]processor.Traces {
	return map[string]processor.Traces{
		"gpu_derive": newProcessor(tb, gpuderiveprocessor.NewFactory(), map[string]any{"attributes": full}, next),
		"transform": newProcessor(tb, transformprocessor.NewFactory(), map[string]any{
			"error_mode": "propagate", "trace_statements": toAny(divisions),
		}, next),
		"transform_fleet": newProcessor(tb, transformprocessor.NewFactory(), map[string]any{
			"error_mode": "propagate", "trace_statements": toAny(fleet()),
		}, next),
	}
}

func toAny(in []string) (out []any) {
	for _, s := range in {
		out = append(out, s)
	}
	return out
}

// Both must give every span the same values, or the comparison would be meaningless.
func TestDeriversAgree(t *testing.T) {
	results := map[string]ptrace.Traces{}
	for name := range derivers(t, consumertest.NewNop()) {
		sink := new(consumertest.TracesSink)
		require.NoError(t, derivers(t, sink)[name].ConsumeTraces(context.Background(), sections()))
		results[name] = sink.AllTraces()[0]
	}
	spans := func(name string) ptrace.SpanSlice {
		return results[name].ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	}
	for i, s := range spans("gpu_derive").All() {
		require.Equal(t, spans("transform").At(i).Attributes().AsRaw(), spans("transform_fleet").At(i).Attributes().AsRaw())
		theirs := spans("transform").At(i).Attributes()
		require.Equal(t, theirs.Len(), s.Attributes().Len())
		for k, v := range s.Attributes().All() {
			w, ok := theirs.Get(k)
			require.True(t, ok, k)
			switch {
			case k == "gpu.peak.source":
			case v.Type().String() == "Double":
				require.InEpsilon(t, w.Double(), v.Double(), 1e-9, k)
			default:
				require.Equal(t, w.AsRaw(), v.AsRaw(), k)
			}
		}
	}
}

// BenchmarkDerive measures a batch as decoded by the otlp receiver, in ns/span, without the
// decoding.
func BenchmarkDerive(b *testing.B) {
	wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(sections())
	require.NoError(b, err)
	all := derivers(b, consumertest.NewNop())
	all["puts_alone"] = newProcessor(b, putsFactory(), nil, consumertest.NewNop())
	for _, name := range []string{"gpu_derive", "transform", "transform_fleet", "puts_alone"} {
		b.Run("by="+name, func(b *testing.B) {
			b.ReportAllocs()
			defer debug.SetGCPercent(debug.SetGCPercent(-1)) // otherwise, collecting the decoder's garbage would be measured
			cpu := newCPUMeter(b)
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				if i%32 == 0 {
					runtime.GC()
				}
				td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				cpu.start()
				err = all[name].ConsumeTraces(context.Background(), td)
				cpu.stop()
				if err != nil {
					b.Fatal(err)
				}
			}
			perSpan(b)
			cpu.report(b)
		})
	}
}

// putsFactory returns a processor that only writes as many attributes as the others, with constant
// values: the cost of pdata itself, a lower bound.
func putsFactory() processor.Factory {
	return processor.NewFactory(component.MustNewType("puts"), func() component.Config { return &struct{}{} },
		processor.WithTraces(func(ctx context.Context, set processor.Settings, cfg component.Config,
			next consumer.Traces,
		) (processor.Traces, error) {
			return processorhelper.NewTraces(ctx, set, cfg, next, func(_ context.Context, td ptrace.Traces) (ptrace.Traces,
				error,
			) {
				for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
					derived.put(s.Attributes(), 13)
				}
				return td, nil
			})
		}, component.StabilityLevelDevelopment))
}

func perSpan(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batchSize, "ns/span")
}
