// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func trained(c *report.Collector) {
	for i := range 4 {
		ms := time.Millisecond
		c.Step("train", statistics.StepSample{
			Index: int64(i + 1), Duration: 100 * ms, Host: 101 * ms,
			Phases: []statistics.PhaseSample{
				{Name: "data", Duration: 20 * ms},
				{Name: "forward", Duration: 30 * ms},
				{Name: "backward", Duration: 40 * ms},
				{Name: "comm", Duration: 25 * ms},
			},
			Overlap: 18 * ms, Other: 3 * ms, Exposed: 7 * ms, Waiting: 20 * ms, Items: 256, ItemType: "image",
			ModelFLOPs: 4e13, Precision: "bf16",
		})
	}
}

func TestTextOfAServiceThatAlsoTrains(t *testing.T) {
	c := served()
	trained(c)
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	golden(t, "summary.txt", b.String())
}

func TestTextFitsItsWidthForAnyNamesAndFigures(t *testing.T) {
	c := report.NewCollector()
	parent := statistics.Node(0)
	for range 30 {
		parent = c.Node(parent, report.Info{
			Name:     strings.Repeat("long name\n\x1b[31m", 20),
			Category: strings.Repeat("ü", 300),
		})
		c.Section(parent, statistics.Sample{
			Timed: true, Start: 1, Duration: 1<<62 - 1, FLOPs: 1e300, Items: 1 << 62, Memory: statistics.IO{Read: 1 << 61},
			HasDelay: true, Precision: "bf16", MemoryDelta: 1 << 62, MemoryUsed: 1 << 62,
		})
	}
	c.Step(strings.Repeat("l", 50), statistics.StepSample{
		Duration: 1 << 61,
		Phases:   []statistics.PhaseSample{{Name: strings.Repeat("p", 200), Duration: 1 << 61}},
	})
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, " ") && !strings.Contains(line, "ong name") { // a single word may exceed the line
			require.LessOrEqual(t, utf8.RuneCountInString(line), report.Width, line)
		}
		require.NotContains(t, line, "\x1b")
	}
}

// The work table lists operations with values and their ancestors; otherwise an operation would
// appear below an unrelated one.
func TestTextKeepsChildrenBelowTheirParents(t *testing.T) {
	c := report.NewCollector()
	step := c.Node(0, report.Info{Name: "forward"})
	head := c.Node(step, report.Info{Name: "head"})
	update := c.Node(0, report.Info{Name: "update"})
	for _, x := range []struct {
		n     statistics.Node
		d     time.Duration
		items int64
	}{{step, 10, 0}, {head, 5, 10_000_000}, {update, 20, 3}} {
		s := timed(x.d * time.Millisecond)
		s.Items = x.items
		c.Section(x.n, s)
	}
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	require.Regexp(t, `Work .*\nupdate .* 150\.0 .*\nforward\n  head .* 2\.000G `, b.String())
}

func TestTextShowsNamesHoweverDeep(t *testing.T) {
	c := report.NewCollector()
	at := statistics.Node(0)
	for i := range 12 {
		at = c.Node(at, report.Info{Name: fmt.Sprint("level", i)})
		c.Section(at, timed(time.Millisecond))
	}
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	require.Contains(t, b.String(), "\n        level4 ")
	require.Contains(t, b.String(), "\n        5: level5 ")
	require.Contains(t, b.String(), "\n        11: level11 ")
}

func TestTextStatesHowManyRunsWereTimed(t *testing.T) {
	c := report.NewCollector()
	n := c.Node(0, report.Info{Name: "gemm"})
	c.Section(n, timed(time.Millisecond))
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	require.NotContains(t, b.String(), "n/m")
	c.Untimed(n, 59_999, statistics.Sample{})
	b.Reset()
	require.NoError(t, c.Summary().WriteText(&b))
	require.Regexp(t, `gemm +1/60k 1\.000ms`, b.String())
	require.Contains(t, b.String(), "\nn/m: n of m runs were timed; times and rates are of those\n")
}

func TestTextStatesWhenTimesAreTheHosts(t *testing.T) {
	c := report.NewCollector()
	n := c.Node(0, report.Info{Name: "gemm"})
	text := func() string {
		var b bytes.Buffer
		require.NoError(t, c.Summary().WriteText(&b))
		return b.String()
	}
	s := timed(time.Millisecond)
	s.OnHost = true
	c.Section(n, s)
	require.Contains(t, text(), "\nno device measured these sections: all times are the host's\n")
	c.Section(n, timed(time.Millisecond))
	require.Contains(t, text(), "\n1 of 2 timed sections have the host's times: no device measured them\n")
	c.Reset()
	c.Section(n, timed(time.Millisecond))
	require.NotContains(t, text(), "host")
}

func TestTextOfNothingReportsIt(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, report.Summary{}.WriteText(&b))
	require.Contains(t, b.String(), "no section has finished")
}

// The text includes what authors declared for operations and sections.
func TestTextStatesDescriptionsZeroCopyAndTheDeviationOfTheRest(t *testing.T) {
	c := report.NewCollector()
	gather := c.Node(0, report.Info{Name: "gather", Description: "rows of the table that tokens need"})
	again := c.Node(gather, report.Info{Name: "gather", Description: "rows of the table that tokens need"})
	plain := c.Node(0, report.Info{Name: "plain"})
	for i, ms := range []int{10, 2, 4} {
		s := statistics.Sample{
			Timed: true, Start: int64(i+1) * 1e9, Duration: time.Duration(ms) * time.Millisecond,
			Memory: statistics.IO{Read: 1e6}, ZeroCopy: true, HasZeroCopy: true, Occurrence: int64(i + 1),
		}
		c.Section(gather, s)
		s.ZeroCopy = false
		c.Section(again, s)
		s.HasZeroCopy = false
		c.Section(plain, s)
	}
	var b strings.Builder
	require.NoError(t, c.Summary().WriteText(&b))
	text := b.String()
	require.Equal(t, 1, strings.Count(text, "\n  gather: rows of the table that tokens need\n"), text)
	require.Regexp(t, `First run and the rest +first +rest +stddev +ratio .*\ngather +10\.00ms 3\.000ms 1\.000ms +3\.333 `, text)
	require.Regexp(t, `Memory access, as declared +pattern +% L2 hits +zero copy\ngather +- +- +yes\n  gather +- +- +no\n\n`, text)
	b.Reset()
	require.NoError(t, c.Summary().WriteJSON(&b))
	require.Equal(t, 1, strings.Count(b.String(), `"zero_copy": "yes"`), b.String())
	require.Equal(t, 1, strings.Count(b.String(), `"zero_copy": "no"`))
}
