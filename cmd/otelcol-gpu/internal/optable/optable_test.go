// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package optable_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/optable"
)

type span struct {
	id, parent byte
	name       string
	attrs      map[string]any
}

func batch(t *testing.T, spans ...span) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	for _, s := range spans {
		p := ss.Spans().AppendEmpty()
		p.SetName(s.name)
		p.SetTraceID(pcommon.TraceID{1})
		p.SetSpanID(pcommon.SpanID{s.id})
		if s.parent != 0 {
			p.SetParentSpanID(pcommon.SpanID{s.parent})
		}
		p.SetStartTimestamp(1000)
		p.SetEndTimestamp(pcommon.Timestamp(1000 + time.Millisecond))
		require.NoError(t, p.Attributes().FromRaw(s.attrs))
	}
	return td
}

func section(seconds float64, more map[string]any) map[string]any {
	m := map[string]any{"gpu.operation.type": "section", "gpu.duration": seconds}
	maps.Copy(m, more)
	return m
}

func render(t *testing.T, table *optable.Table, rows int) []string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, table.Render(&b, rows))
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestRatesAreSumsOverSums(t *testing.T) {
	table := optable.New()
	table.Add(batch(t,
		span{id: 1, name: "copy", attrs: section(1e-3, map[string]any{"gpu.io.size": int64(1e6), "gpu.io.utilization": 0.5, "gpu.energy": 0.25})},
		span{id: 2, name: "copy", attrs: section(3e-3, map[string]any{"gpu.io.size": int64(1e6), "gpu.io.utilization": 0.1, "gpu.energy": 0.5})},
		span{id: 3, name: "gemm", attrs: section(4e-3, map[string]any{"gpu.flop.count": 2e9, "gpu.roofline.bound": "compute"})},
		span{id: 4, name: "host work", attrs: map[string]any{"http.route": "/"}},
	))
	require.Equal(t, []string{
		"OPERATION TYPE COUNT GPU TIME SHARE GB/s TFLOP/s % PEAK BOUND J",
		"copy section 2 4.000 ms 50.0% 0.5 - 20.0 - 0.75", // (0.5×1 + 0.1×3) ÷ 4
		"gemm section 1 4.000 ms 50.0% - 0.50 - compute -",
	}, render(t, table, 0))
	all, gpu := table.Spans()
	require.Equal(t, int64(4), all)
	require.Equal(t, int64(3), gpu)
}

func TestSharesAreOfOutermostSpansInAnyOrder(t *testing.T) {
	outer := span{id: 1, parent: 9, name: "outer", attrs: section(8e-3, nil)}
	inner := span{id: 2, parent: 1, name: "inner", attrs: section(2e-3, nil)}
	for name, order := range map[string][]span{"parent first": {outer, inner}, "child first": {inner, outer}} {
		t.Run(name, func(t *testing.T) {
			table := optable.New()
			for _, s := range order {
				table.Add(batch(t, s))
			}
			require.Equal(t, []string{
				"OPERATION TYPE COUNT GPU TIME SHARE GB/s TFLOP/s % PEAK BOUND J",
				"outer section 1 8.000 ms 100.0% - - - - -",
				"inner section 1 2.000 ms 25.0% - - - - -",
			}, render(t, table, 0))
		})
	}
}

func TestStepsStandApart(t *testing.T) {
	table := optable.New()
	table.Add(batch(t,
		span{id: 1, name: "train", attrs: map[string]any{
			"gpu.operation.type": "step", "gpu.step.duration": 0.5, "gpu.step.items": int64(100),
			"gpu.step.item.type": "image", "gpu.step.mfu": 0.25,
		}},
		span{id: 2, parent: 1, name: "forward", attrs: section(0.1, nil)},
	))
	require.Equal(t, []string{
		"OPERATION TYPE COUNT GPU TIME SHARE GB/s TFLOP/s % PEAK BOUND J",
		"forward section 1 100.000 ms 100.0% - - - - -",
		"STEPS OF COUNT MEAN STEP ITEMS/s MFU % J",
		"train 1 500.000 ms 200.0 image 25.0 -",
	}, render(t, table, 0))
}

func TestRowsBeyondTheLimitAreSummed(t *testing.T) {
	table := optable.New()
	table.Add(batch(t,
		span{id: 1, name: "a", attrs: section(4e-3, nil)},
		span{id: 2, name: "b", attrs: section(3e-3, nil)},
		span{id: 3, name: "c", attrs: section(1e-3, nil)},
	))
	lines := render(t, table, 1)
	require.Equal(t, "(2 more operations) 2 4.000 ms 50.0% - - - - -", lines[2])
}

func TestNamesAreNeverCutToTheSameText(t *testing.T) {
	long := strings.Repeat("x", 40)
	table := optable.New()
	table.Add(batch(t,
		span{id: 1, name: "ends in a " + long + " a", attrs: section(5e-3, nil)},
		span{id: 2, name: "ends in a " + long + " b", attrs: section(4e-3, nil)},
		span{id: 3, name: long + " middle 1 " + long, attrs: section(3e-3, nil)},
		span{id: 4, name: long + " middle 2 " + long, attrs: section(2e-3, nil)},
		span{id: 5, name: "alone " + long, attrs: section(1e-3, nil)},
	))
	var names []string
	for _, line := range render(t, table, 0)[1:] {
		name, _, _ := strings.Cut(line, " section")
		names = append(names, name)
	}
	require.Equal(t, []string{
		"ends in a xxxxxxx…xxxxxxxxxxxxxx a", "ends in a xxxxxxx…xxxxxxxxxxxxxx b",
		long + " middle 1 " + long, long + " middle 2 " + long, "alone xxxxxxxxxxxxxxxxxxxxxxxxxxx…",
	}, names)
}

func TestNamesCannotCommandTheTerminal(t *testing.T) {
	table := optable.New()
	table.Add(batch(t, span{id: 1, name: "k\x1b[2J\r", attrs: section(1e-3, nil)}))
	require.Contains(t, render(t, table, 0)[1], `k\x1b[2J\r section`)
}

// A phase and what runs in it may hang side by side below the step: the part counts with the whole.
func TestSpansWithinSiblingsOnTheirStreamCountOnce(t *testing.T) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	add := func(id byte, name string, stream, start, end int64) {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{id})
		s.SetParentSpanID(pcommon.SpanID{9})
		s.SetName(name)
		s.SetStartTimestamp(pcommon.Timestamp(start * 1e6))
		s.SetEndTimestamp(pcommon.Timestamp(end * 1e6))
		s.Attributes().PutStr("gpu.operation.type", "section")
		s.Attributes().PutInt("gpu.stream.id", stream)
		s.Attributes().PutInt("gpu.device.ordinal", 0)
		s.Attributes().PutDouble("gpu.duration", float64(end-start)/1e3)
	}
	add(1, "forward", 1, 0, 10)
	add(2, "adamw", 1, 11, 19)
	add(3, "optimizer", 1, 10, 20)
	add(4, "copy", 2, 12, 18)
	table := optable.New()
	table.Add(td)
	lines := strings.Join(render(t, table, 10), "\n")
	for name, share := range map[string]string{"forward": "38.5%", "optimizer": "38.5%", "adamw": "30.8%", "copy": "23.1%"} { // of 26 ms
		require.Regexp(t, name+" section 1 .* ms "+share, lines)
	}
}
