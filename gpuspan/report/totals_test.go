// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

func TestItemsOfAllOperationsAreCountedOnce(t *testing.T) {
	now := epoch
	c := report.NewCollector(report.WithClock(func() time.Time { return now }))
	token := func(parent statistics.Node, name, item string, n int64) statistics.Node {
		node := c.Node(parent, report.Info{Name: name, ItemType: item})
		c.Section(node, statistics.Sample{Timed: true, Duration: time.Millisecond, Items: n})
		return node
	}
	prefill := token(0, "prefill", "token", 600)
	layer := token(prefill, "layer", "", 0)
	token(layer, "attention", "token", 600)
	token(layer, "pixels", "image", 7)
	token(0, "decode", "token", 40)
	token(0, "untyped", "", 5)
	now = epoch.Add(2 * time.Second)
	require.Equal(t, []report.ItemTotal{{Type: "token", Count: 640, Rate: 320}, {Type: "image", Count: 7, Rate: 3.5}},
		c.Summary().Items())
}

func TestSummaryOfOneCategory(t *testing.T) {
	c := report.NewCollector()
	add := func(parent statistics.Node, name, category string, ms int64) statistics.Node {
		n := c.Node(parent, report.Info{Name: name, Category: category})
		on(c, n, 0, 0, ms)
		return n
	}
	outer := add(0, "outer", "model", 100)
	attention := add(outer, "attention", "attention", 30)
	add(attention, "softmax", "", 10)
	add(outer, "mlp", "mlp", 60)
	add(0, "cross", "attention", 10)
	s := c.Summary().Category("attention")
	require.Len(t, s.Operations, 3)
	require.Equal(t, 40*time.Millisecond, s.Total())
	require.Equal(t, []string{"attention", "softmax"}, find(t, s, "softmax").Path)
	require.InDelta(t, .75, find(t, s, "attention").ShareOfTotal, 1e-12)
	require.InDelta(t, 1./3, find(t, s, "softmax").ShareOfParent, 1e-12)
	require.InDelta(t, .25, find(t, s, "softmax").ShareOfTotal, 1e-12)
	require.Zero(t, find(t, s, "attention").Depth)
	require.Empty(t, c.Summary().Category("none").Operations)
	var b bytes.Buffer
	require.NoError(t, s.WriteText(&b))
	require.NotContains(t, b.String(), "mlp")
}

// A descendant with another category is not part of the category's summary.
func TestSummaryOfOneCategoryLeavesOutOthersBelow(t *testing.T) {
	c := report.NewCollector()
	add := func(parent statistics.Node, name, category string, ms int64) statistics.Node {
		n := c.Node(parent, report.Info{Name: name, Category: category})
		on(c, n, 0, 0, ms)
		return n
	}
	run := add(0, "request", "runtime", 100)
	layer := add(run, "layer", "model", 60)
	add(layer, "norm", "", 5)
	add(layer, "allocate", "runtime", 20)
	add(run, "schedule", "", 10)
	s := c.Summary().Category("runtime")
	var names []string
	for _, o := range s.Operations {
		names = append(names, o.Name)
	}
	require.ElementsMatch(t, []string{"request", "allocate", "schedule"}, names)
	require.Equal(t, []string{"request", "allocate"}, find(t, s, "allocate").Path)
	require.InDelta(t, .2, find(t, s, "allocate").ShareOfParent, 1e-12, "of what it is now below")
	var b bytes.Buffer
	require.NoError(t, s.WriteText(&b))
	require.NotContains(t, b.String(), "model")
	require.NotContains(t, b.String(), "norm")
}

// Operations of StartNamed have no category, so the table has a row for their time, or it would not
// add up.
func TestCategoryTableAddsUp(t *testing.T) {
	c := report.NewCollector()
	add := func(parent statistics.Node, name, category string, ms int64) statistics.Node {
		n := c.Node(parent, report.Info{Name: name, Category: category})
		on(c, n, 0, 0, ms)
		return n
	}
	step := add(0, "step", "", 100)
	layer := add(step, "attention", "attention", 60)
	add(layer, "inner", "mlp", 10)
	add(step, "named", "", 15)
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	require.Regexp(t, `attention +1 +60\.00ms +60\.0 `, b.String())
	require.Regexp(t, `\(no category\) +1 +40\.00ms +40\.0 `, b.String())
}

func TestItemsAreWrittenAsCounts(t *testing.T) {
	c := report.NewCollector()
	c.Section(c.Node(0, report.Info{Name: "decode", ItemType: "token"}), statistics.Sample{Items: 192})
	c.Section(c.Node(0, report.Info{Name: "render", ItemType: "image"}), statistics.Sample{Items: 1})
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	require.Contains(t, b.String(), "192 tokens")
	require.Contains(t, b.String(), "\n1 image")
	require.NotContains(t, b.String(), "1 images,")
}

func TestSummaryOfOneLevelOfTiles(t *testing.T) {
	c := report.NewCollector()
	for _, level := range []string{"macro", "micro", "macro"} {
		for _, name := range []string{"copy", "multiply"} {
			on(c, c.Node(0, report.Info{Name: name + " " + level, Level: level}), 0, 0, 10)
		}
	}
	require.Equal(t, 40*time.Millisecond, c.Summary().Level("macro").Total())
	require.Equal(t, 20*time.Millisecond, c.Summary().Level("micro").Total())
	require.Len(t, c.Summary().Level("micro").Operations, 2)
	require.Empty(t, c.Summary().Level("midi").Operations)
}

// Names with a common prefix stay distinguishable; others are truncated to the column.
func TestTruncatedNamesStayDistinct(t *testing.T) {
	c := report.NewCollector()
	for i := range 8 {
		c.Section(c.Node(0, report.Info{Name: fmt.Sprintf("transfer host to device, buffer %d", i)}),
			statistics.Sample{Timed: true, Duration: time.Millisecond, Memory: statistics.IO{Read: 1e6}})
	}
	c.Section(c.Node(0, report.Info{Name: "a name that is longer than its column"}),
		statistics.Sample{Timed: true, Duration: time.Millisecond})
	var b bytes.Buffer
	require.NoError(t, c.Summary().WriteText(&b))
	for i := range 8 {
		require.Equal(t, 2, strings.Count(b.String(), fmt.Sprintf("transfer host to device, buffer %d\n", i)), "%d\n%s", i,
			b.String())
	}
	require.Regexp(t, `\na name that is long… +1 `, b.String()+"\n")
	for line := range strings.Lines(b.String()) {
		require.LessOrEqual(t, len([]rune(line)), 101)
	}
}
