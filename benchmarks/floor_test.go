// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package benchmarks

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata"
)

// settle is gpu_join's default.
const settle = 6 * time.Second

// holdStage is the queue of gpu_join without a join: it delays each request as long, as pdata.
func holdStage(t *testing.T, h *samplesHost, next consumer.Traces) consumer.Traces {
	set := exportertest.NewNopSettings(component.MustNewType("hold"))
	q, err := exporterhelper.NewTraces(context.Background(), set, &struct{}{},
		func(ctx context.Context, td ptrace.Traces) error {
			spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			time.Sleep(time.Until(spans.At(spans.Len() - 1).EndTimestamp().AsTime().Add(settle)))
			return next.ConsumeTraces(ctx, td)
		},
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{}),
		exporterhelper.WithQueue(configoptional.Some(exporterhelper.QueueBatchConfig{
			Sizer: exporterhelper.RequestSizerTypeBytes, QueueSize: 64 << 20, NumConsumers: 1,
		})))
	require.NoError(t, err)
	require.NoError(t, q.Start(context.Background(), h))
	t.Cleanup(func() { require.NoError(t, q.Shutdown(context.Background())) })
	return q
}

// eachSpan is a stage that only does one thing to every span.
func eachSpan(do func(pcommon.Map)) stage {
	return func(t *testing.T, _ *samplesHost, next consumer.Traces) consumer.Traces {
		c, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
				do(s.Attributes())
			}
			return next.ConsumeTraces(ctx, td)
		}, consumer.WithCapabilities(consumer.Capabilities{MutatesData: true}))
		require.NoError(t, err)
		return c
	}
}

// readStage reads every name and value of the attributes once.
func readStage() stage { return eachSpan(read) }

func read(a pcommon.Map) {
	empty := 0
	for k, v := range a.All() {
		if k == "" && v.Type() == pcommon.ValueTypeEmpty {
			empty++
		}
	}
	if empty > 0 {
		panic("attributes without name and value")
	}
}

func putStage(n names, room int) stage {
	return eachSpan(func(a pcommon.Map) { n.put(a, room) })
}

func buildStage(n names, room int) stage {
	b := new(xpdata.MapBuilder)
	return eachSpan(func(a pcommon.Map) { n.build(b, a, room) })
}

// floor is the minimum work of join, derive and metrics: each reads a span once, the first delays
// it until its samples arrive, and the first two write.
func floor() stage {
	return pipeline(readStage(), holdStage, buildStage(joined, 32), readStage(), putStage(derived, 0), readStage())
}

// The floor must write the attributes that the components write, or it would not be a lower bound.
func TestFloorWritesLikeTheComponents(t *testing.T) {
	var before, after, few []string
	keys := func(into *[]string) stage {
		return eachSpan(func(a pcommon.Map) {
			var got []string
			for k := range a.All() {
				got = append(got, k)
			}
			if len(got) > len(*into) { // the last ones are released at shutdown, without samples
				*into = got
			}
		})
	}
	measure(t, requests(t), 1, pipeline(keys(&before), joinStage(full), deriveStage(full), keys(&after)),
		func(context.Context, ptrace.Traces) error { return nil })
	require.Len(t, before, 13)
	require.ElementsMatch(t, append(joined.all(), derived.all()...), after[len(before):])
	measure(t, requests(t), 1, pipeline(joinStage(lean), deriveStage(lean), keys(&few)),
		func(context.Context, ptrace.Traces) error { return nil })
	require.ElementsMatch(t, leanly.all(), few[len(before):])
}
