// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable_test

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
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

func render(t *testing.T, table *summarytable.Table, rows int) []string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, table.Render(&b, summarytable.Format{Rows: rows}))
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestRatesAreSumsOverSums(t *testing.T) {
	table := summarytable.New()
	table.Add(batch(t,
		span{id: 1, name: "copy", attrs: section(1e-3, map[string]any{
			"gpu.io.size": int64(1e6), "gpu.io.utilization": 0.5,
			"gpu.energy": 0.25,
		})},
		span{id: 2, name: "copy", attrs: section(3e-3, map[string]any{
			"gpu.io.size": int64(1e6), "gpu.io.utilization": 0.1,
			"gpu.energy": 0.5,
		})},
		span{id: 3, name: "gemm", attrs: section(4e-3, map[string]any{
			"gpu.flop.count":     2e9,
			"gpu.roofline.bound": "compute",
		})},
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

// Spans arrive in any order, some again, with host spans between them, from two ranks that draw the
// same IDs.
func TestSharesAreOfOutermostSpansInAnyOrder(t *testing.T) {
	spans := []span{
		{id: 1, parent: 9, name: "outer", attrs: section(8e-3, nil)},
		{id: 2, parent: 3, name: "inner", attrs: section(2e-3, nil)},
		{id: 3, parent: 1, name: "host", attrs: map[string]any{}},
	}
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		table := summarytable.New()
		order := r.Perm(2 * len(spans))
		for _, i := range append(order, order[:r.IntN(len(order))]...) {
			td := batch(t, spans[i%len(spans)])
			td.ResourceSpans().At(0).Resource().Attributes().PutInt("gpu.job.rank", int64(i/len(spans)))
			table.Add(td)
		}
		require.Equal(t, []string{
			"OPERATION TYPE COUNT GPU TIME SHARE GB/s TFLOP/s % PEAK BOUND J",
			"outer section 2 16.000 ms 100.0% - - - - -",
			"inner section 2 4.000 ms 25.0% - - - - -",
			"(rest) 12.000 ms 75.0%",
		}, render(t, table, 0), "seed %d", seed)
	}
}

func TestStepsAreSeparate(t *testing.T) {
	table := summarytable.New()
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
	table := summarytable.New()
	table.Add(batch(t,
		span{id: 1, name: "a", attrs: section(4e-3, nil)},
		span{id: 2, name: "b", attrs: section(3e-3, nil)},
		span{id: 3, name: "c", attrs: section(1e-3, nil)},
	))
	lines := render(t, table, 1)
	require.Equal(t, "(2 more operations) 2 4.000 ms 50.0% - - - - -", lines[2])
}

func TestTruncatedNamesStayDistinct(t *testing.T) {
	long := strings.Repeat("x", 60)
	table := summarytable.New()
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
		"ends in a " + strings.Repeat("x", 20) + "…" + strings.Repeat("x", 27) + " a",
		"ends in a " + strings.Repeat("x", 20) + "…" + strings.Repeat("x", 27) + " b",
		long + " middle 1 " + long, long + " middle 2 " + long, "alone " + strings.Repeat("x", 53) + "…",
	}, names)
	var b strings.Builder
	require.NoError(t, table.Render(&b, summarytable.Format{Width: 40}))
	seen := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 40, line)
		name, _, _ := strings.Cut(line, "  ")
		require.False(t, seen[name], "%s", &b)
		seen[name] = true
	}
}

func TestNamesCannotCommandTheTerminal(t *testing.T) {
	table := summarytable.New()
	table.Add(batch(t, span{id: 1, name: "k\x1b[2J\r", attrs: section(1e-3, nil)}))
	require.Contains(t, render(t, table, 0)[1], `k\x1b[2J\r section`)
}

// A phase and the sections in it may be siblings below the step: the section is part of the phase.
// Streams of another device may have the same numbers, whether devices are distinguished by ordinal
// or by identity.
func TestSpansWithinSiblingsOnTheirStreamCountOnce(t *testing.T) {
	for _, devices := range [][2]map[string]any{
		{{"gpu.device.ordinal": 0}, {"gpu.device.ordinal": 1}},
		{{"hw.id": "GPU-a"}, {"hw.id": "GPU-b"}},
		{{"gpu.pci.bdf": "0000:17:00.0"}, {"gpu.pci.bdf": "0000:65:00.0"}},
	} {
		spansWithinSiblings(t, devices)
	}
}

func spansWithinSiblings(t *testing.T, devices [2]map[string]any) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	add := func(id byte, name string, device int, stream, start, end int64) {
		s := spans.AppendEmpty()
		require.NoError(t, s.Attributes().FromRaw(devices[device]))
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{id})
		s.SetParentSpanID(pcommon.SpanID{9})
		s.SetName(name)
		s.SetStartTimestamp(pcommon.Timestamp(start * 1e6))
		s.SetEndTimestamp(pcommon.Timestamp(end * 1e6))
		s.Attributes().PutStr("gpu.operation.type", "section")
		s.Attributes().PutInt("gpu.stream.id", stream)
		s.Attributes().PutDouble("gpu.duration", float64(end-start)/1e3)
	}
	add(1, "forward", 0, 1, 0, 10)
	add(2, "adamw", 0, 1, 11, 19)
	add(3, "optimizer", 0, 1, 10, 20)
	add(4, "copy", 0, 2, 12, 18)
	add(5, "elsewhere", 1, 1, 0, 20)
	table := summarytable.New()
	table.Add(td)
	var b strings.Builder
	require.NoError(t, table.Render(&b, summarytable.Format{}))
	lines := b.String()
	// of 46 ms
	for name, share := range map[string]string{
		"forward": "21.7%", "optimizer": "21.7%", "  adamw": "17.4%", "copy": "13.0%", "elsewhere": "43.5%",
	} {
		require.Regexp(t, "(?m)^"+name+" +section +1 .* ms +"+share, lines)
	}
}

// service returns a table of nested operations that arrived in any order.
func service(t *testing.T) *summarytable.Table {
	table := summarytable.New()
	spans := []span{
		{id: 1, name: "prefill", attrs: section(60e-3, map[string]any{"gpu.energy": 6.0, "gpu.roofline.bound": "compute"})},
		{id: 2, parent: 1, name: "attention", attrs: section(20e-3, nil)},
		{id: 3, parent: 2, name: "scores", attrs: section(20e-3, nil)},
		{id: 4, parent: 1, name: "mlp", attrs: section(30e-3, nil)},
		{id: 5, name: "decode 日本語の長い名前", attrs: section(30e-3, map[string]any{
			"gpu.io.size":        int64(1e9),
			"gpu.io.utilization": 0.5, "gpu.roofline.bound": "memory",
		})},
		{id: 6, parent: 5, name: "attention", attrs: section(10e-3, nil)},
		{id: 7, parent: 99, name: "🚀🚀 copy", attrs: section(10e-3, nil)},
		{id: 8, name: "train", attrs: map[string]any{"gpu.operation.type": "step", "gpu.step.duration": 0.5}},
	}
	for _, i := range []int{6, 2, 5, 3, 1, 0, 7, 4} {
		table.Add(batch(t, spans[i]))
	}
	return table
}

func TestSharesOfEachLevelSumToTheLevelAbove(t *testing.T) {
	var b strings.Builder
	require.NoError(t, service(t).Render(&b, summarytable.Format{}))
	var got []string
	for line := range strings.Lines(b.String()) {
		if share := regexp.MustCompile(`^(.*?)(?: +section.*)? +[\d.]+ ms +([\d.]+%)`).FindStringSubmatch(
			line); share != nil {
			got = append(got, share[1]+" "+share[2])
		}
	}
	require.Equal(t, []string{
		"prefill 60.0%", "  mlp 30.0%", "  attention 20.0%", "    scores 20.0%", "  (rest) 10.0%",
		"decode 日本語の長い名前 30.0%", "  attention 10.0%", "  (rest) 20.0%", "🚀🚀 copy 10.0%",
	}, got)
}

func TestATableFitsItsTerminal(t *testing.T) {
	wide := runewidth.NewCondition()
	wide.EastAsianWidth = false
	for _, size := range [][2]int{{80, 24}, {200, 50}, {40, 10}, {30, 8}, {120, 7}} {
		var b strings.Builder
		require.NoError(t, service(t).Render(&b, summarytable.Format{Width: size[0], Height: size[1]}))
		require.Less(t, strings.Count(b.String(), "\n"), size[1], "%v\n%s", size, &b)
		for line := range strings.Lines(b.String()) {
			require.Less(t, wide.StringWidth(strings.TrimRight(line, "\n")), size[0], "%v\n%s", size, &b)
		}
		require.Contains(t, b.String(), "GPU TIME"[:3])
		require.Contains(t, b.String(), "train")
		if size[0] >= 80 {
			require.Regexp(t, "OPERATION .* GPU TIME .* SHARE .* BOUND .* J", strings.SplitN(b.String(), "\n", 2)[0])
		}
		if size[0] == 200 {
			require.Regexp(t, "TYPE .* TFLOP/s", b.String())
		}
	}
}

func TestColumnsAreAlignedForAnyNames(t *testing.T) {
	var b strings.Builder
	require.NoError(t, service(t).Render(&b, summarytable.Format{Width: 200}))
	wide := runewidth.NewCondition()
	wide.EastAsianWidth = false
	at := -1
	for line := range strings.Lines(b.String()) {
		if before, _, ok := strings.Cut(line, " ms"); ok && strings.Contains(line, "section") {
			if at < 0 {
				at = wide.StringWidth(before)
			}
			require.Equal(t, at, wide.StringWidth(before), line)
		}
	}
	require.Positive(t, at)
}

func TestColoursAreOnlyWhereTheyAreWanted(t *testing.T) {
	var plain, coloured strings.Builder
	require.NoError(t, service(t).Render(&plain, summarytable.Format{Width: 80}))
	require.NoError(t, service(t).Render(&coloured, summarytable.Format{Width: 80, Colour: true}))
	require.NotContains(t, plain.String(), "\x1b")
	require.Contains(t, coloured.String(), "\x1b[32mcompute\x1b[0m")
	require.Contains(t, coloured.String(), "\x1b[36mmemory\x1b[0m")
	require.Equal(t, plain.String(), regexp.MustCompile("\x1b\\[\\d+m").ReplaceAllString(coloured.String(), ""))
}

func TestOperationsWithinThemselvesEnd(t *testing.T) {
	table := summarytable.New()
	table.Add(batch(t,
		span{id: 1, name: "module", attrs: section(9e-3, nil)},
		span{id: 2, parent: 1, name: "module", attrs: section(8e-3, nil)},
		span{id: 3, parent: 2, name: "other", attrs: section(7e-3, nil)},
		span{id: 4, parent: 3, name: "module", attrs: section(6e-3, nil)},
	))
	lines := render(t, table, 0)
	require.Equal(t, "module section 1 9.000 ms 100.0% - - - - -", lines[1])
	require.Contains(t, strings.Join(lines, "\n"), "other section 1 7.000 ms")
}

func TestTheTableHasFindings(t *testing.T) {
	table := summarytable.New()
	table.Add(batch(t, span{id: 1, name: "gemm", attrs: section(1e-3, nil)}))
	require.NotContains(t, strings.Join(render(t, table, 0), "\n"), "NOTE", "nothing does")

	throttled := map[string]any{"gpu.flop.count": 1e9, "gpu.throttle.reasons": []any{"sw_power_cap"}}
	list := []span{
		{id: 2, name: "prefill", attrs: section(5e-3, throttled)},
		{id: 3, name: "h2d", attrs: map[string]any{
			"gpu.operation.type": "copy", "gpu.duration": 2e-3, "gpu.copy.host_memory": "pageable",
		}},
		{id: 4, name: "train", attrs: map[string]any{"gpu.operation.type": "step", "gpu.step.duration": 0.5}},
	}
	for i := range byte(30) {
		list = append(list, span{id: 100 + i, name: "long " + string('a'+rune(i)), attrs: section(10e-3, nil)})
	}
	for i := range byte(10) { // concurrent operations have the reasons now and then
		s := span{id: 20 + i, name: "often", attrs: section(3e-3, map[string]any{"gpu.flop.count": 1e9})}
		if i == 0 {
			s.attrs = section(3e-3, throttled)
		}
		list = append(list, s)
	}
	table.Add(batch(t, list...))
	for rank, late := range []float64{1.1, 1.5} {
		td := batch(t, span{id: 60, name: "straggler", attrs: map[string]any{
			"gpu.operation.name": "train", "gpu.straggler.score": late, "gpu.straggler.median": 0.2,
		}})
		td.ResourceSpans().At(0).Resource().Attributes().PutInt("gpu.job.rank", int64(rank))
		table.Add(td)
	}
	for i := range 5 {
		td := batch(t, span{id: 70, name: "POST"})
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("service.name", "chat")
		s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		s.SetKind(ptrace.SpanKindServer)
		s.SetEndTimestamp(s.StartTimestamp() + pcommon.Timestamp((1+i*i)*int(time.Millisecond)))
		table.Add(td)
	}
	lines := strings.Join(render(t, table, 0), "\n")
	require.Contains(t, lines, "often section 10 30.000 ms 8.9% - 0.33 - - -\n")
	require.Contains(t, lines, "prefill section 1 5.000 ms 1.5% - 0.20 - - - throttled\n")
	require.Contains(t, lines, "h2d copy 1 2.000 ms 0.6% - - - - - pageable\n")
	require.Contains(t, lines, "train 1 500.000 ms - - - rank 1 is late by 100ms\n")
	require.Contains(t, lines, "REQUESTS OF COUNT MEDIAN SLOWEST\nchat 5 5.000 ms 17.000 ms")
	for _, f := range []summarytable.Format{{Width: 80, Height: 24}, {Width: 60, Height: 12}, {Width: 24, Height: 10}} {
		var b strings.Builder
		require.NoError(t, table.Render(&b, f))
		require.Less(t, strings.Count(b.String(), "\n"), f.Height)
		if f.Width > 24 {
			require.Contains(t, b.String(), "throttled", "what has a note is there although others took more time")
		}
		for line := range strings.Lines(b.String()) {
			require.Less(t, runewidth.StringWidth(strings.TrimSpace(line)), f.Width)
		}
	}
}
