// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// flameLabels returns the drawn frames, from the top, with their widths in pixels.
const flameLabels = `[...document.querySelectorAll("#flames svg.flames g")].map((n) => n.textContent)`

func flameFrame(b *tab, name string) int {
	b.t.Helper()
	return eval[int](b, fmt.Sprintf(`%s.indexOf(%q)`, flameLabels, name))
}

func TestFlameGraphOnTheLivePage(t *testing.T) {
	var clock atomic.Int64
	start := time.Now()
	clock.Store(start.UnixNano())
	m := page.NewWithClock(func() time.Time { return time.Unix(0, clock.Load()) })
	energy := func(joules float64) map[string]any {
		return map[string]any{"gpu.energy": joules, "gpu.self_energy": joules}
	}
	work := func(ago, gemm time.Duration, trace byte) {
		at := start.Add(-ago)
		m.Traces(spans(t, "chat", "GPU-0", -1, span{"gemm", "section", at, gemm, trace, energy(3)},
			span{"norm", "section", at.Add(gemm), 2 * time.Second, trace + 1, energy(9)}))
	}
	work(110*time.Second, 4*time.Second, 1) // the minute before
	work(30*time.Second, 6*time.Second, 5)
	clock.Store(start.Add(5 * time.Second).UnixNano())
	srv := httptest.NewServer(page.Handler(m, traceURL))
	t.Cleanup(srv.Close)
	b := open(t, srv.URL, 1200, 900)
	b.until(`document.querySelectorAll("#flames svg.flames rect").length === 4`)
	b.hangsTogether()
	b.readable()
	b.fits()
	assert.Equal(t, []string{"all", "chat", "gemm", "norm"}, eval[[]string](b, flameLabels))
	said := lines(b.tip(b.middle("#flames svg.flames g", 2)))
	assert.Equal(t, []string{"gemm", "6 s, 75 %; self 6 s", "click: zoom"}, said)

	// By mouse: zoom, the example trace, and back.
	x, y := b.middle("#flames svg.flames g", 2)
	b.do(chromedp.MouseEvent("mousePressed", x, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent("mouseReleased", x, y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	b.until(`document.querySelectorAll("#flames svg.flames rect").length === 3`)
	b.run(`document.querySelector("#flames .says .trace button").click()`)
	b.until(`document.querySelector("#trace a") !== null`)
	assert.Equal(t, "http://jaeger.test/trace/00000000000000000000000000000005", eval[string](b, `document.querySelector("#trace a").href`))
	assert.Contains(t, b.text("#trace .name"), "gemm")
	b.press("trace", "close")
	b.press("flames", "show all")
	b.until(`document.querySelectorAll("#flames svg.flames rect").length === 4`)

	// By energy: the operation with less time takes more joules.
	b.press("flames", "energy")
	b.until(flameLabels + `[2] === "norm"`)
	assert.Contains(t, b.text("#flames .says"), "12 J")

	// By keys: down to the service, to its first and second frame, zoom, and Escape.
	b.press("flames", "GPU time")
	b.run(`document.querySelector("#flames svg.flames").focus()`)
	b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowRight))
	b.until(`document.querySelector("#flames .says strong").textContent === "norm"`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelectorAll("#flames svg.flames rect").length === 3`)
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
	b.until(`flame.zoom.length === 0`)

	// Search totals its matches.
	b.run(`const n = document.querySelector("#flames input"); n.value = "NORM"; n.dispatchEvent(new Event("input", {bubbles: true}))`)
	b.until(`document.querySelectorAll("#flames rect.found").length === 1`)
	assert.Contains(t, b.text("#flames .says"), "2 s (25 %) in frames whose names contain this")
	b.run(`const n = document.querySelector("#flames input"); n.value = ""; n.dispatchEvent(new Event("input", {bubbles: true}))`)

	// By kernel, the stack is inverted.
	b.press("flames", "kernel")
	b.until(flameLabels + `[1] === "gemm"`)
	b.press("flames", "call stack")

	// The table has the same.
	b.run(`document.querySelector("#flames details").open = true`)
	b.until(`document.querySelector("#flames table") !== null`)
	assert.Equal(t, []string{"chat", "gemm", "norm"}, b.column("flames", "frame"))
	assert.Equal(t, []string{"8 s", "6 s", "2 s"}, b.column("flames", "total"))

	// The difference from the minute before: gemm takes 2 s more, norm is the same.
	b.run(`const n = document.querySelectorAll("#flames select")[1]; n.value = "before"; n.dispatchEvent(new Event("change"))`)
	b.until(`document.querySelector("#flames rect.fmore") !== null && document.querySelector("#flames rect.fsame") !== null`)
	assert.Equal(t, []string{"+2 s", "+2 s", "+0 s"}, b.column("flames", "change"))
	said = lines(b.tip(b.middle("#flames svg.flames g", flameFrame(b, "gemm"))))
	assert.Contains(t, said, "before 4 s, +2 s")
	b.readable()
	b.hangsTogether()
}

// A flame graph with the maximum number of nodes, and hostile names.
func TestFlameGraphOfManyStacksAndHostileNames(t *testing.T) {
	graph := func(scale float64) *stackprofile.Graph {
		g := &stackprofile.Graph{Frames: []stackprofile.GraphFrame{{Name: "svc", Kind: "service"}}}
		g.Nodes = append(g.Nodes, stackprofile.GraphNode{Parent: -1})
		for i := range 20_000 {
			name := fmt.Sprint("kernel ", i)
			if i < len(hostile) {
				name = hostile[i]
			}
			g.Frames = append(g.Frames, stackprofile.GraphFrame{Name: name, Full: name + "<float>", Kind: "kernel"})
			n := stackprofile.GraphNode{Parent: i / 8, Frame: i + 1, Trace: hostile[0]}
			n.Values[stackprofile.Time] = scale * 1e9 / float64(1+i)
			g.Nodes = append(g.Nodes, n)
		}
		return g
	}
	book := page.NewBook()
	book.Profile("many", nil, nil)
	s := book.State(nil)
	s.Flames, s.FlamesBefore = graph(2), graph(1)
	b := open(t, write(t, s), 1200, 900)
	assert.Contains(t, b.text("#flames svg.flames"), hostile[1])
	assert.Zero(t, eval[int](b, `document.querySelectorAll("img, svg svg, [onerror], [onload]").length`))
	assert.Less(t, eval[int](b, `document.querySelectorAll("#flames rect").length`), 4100)
	t.Logf("drawn from data in %.0f ms, again in %.0f ms", eval[float64](b,
		`(() => { flame.made = null; const t = performance.now(); draw("flames"); return performance.now() - t; })()`),
		eval[float64](b, `(() => { const t = performance.now(); draw("flames"); return performance.now() - t; })()`))
	assert.Positive(t, eval[int](b, `document.querySelectorAll("#flames rect.fmore").length`))
	b.press("flames", "as shares")
	b.until(`document.querySelectorAll("#flames rect.fmore").length === 0`)
	b.fits()
	b.hangsTogether()
	require.Empty(t, eval[[]string](b, `[...document.querySelectorAll("#flames a")].map((n) => n.href)`), "no trace has this ID")
}

// A flame graph of 100,000 stacks has a bounded number of elements, and its totals include every
// stack. The log has the time from data in memory to the first frame.
func TestFlameGraphOf100000StacksIsBounded(t *testing.T) {
	book := page.NewBook()
	book.Profile("many", nil, nil)
	s := book.State(nil)
	s.Flames = &stackprofile.Graph{
		Frames: []stackprofile.GraphFrame{{Name: "svc", Kind: "service"}}, Tags: []stackprofile.GraphTags{{}},
		Nodes: []stackprofile.GraphNode{{Parent: -1, Values: [3]float64{1e9, 1e6, 1e9}}},
	}
	b := open(t, write(t, s), 1200, 900)
	// Ten frames below each frame, five levels deep; the second graph has twice the time in every
	// other kernel.
	b.run(`window.many = (second) => {
		const kinds = ["service", "route", "section", "module", "kernel"], g = {start: 0, end: 1, sources: [], frames: [], tags: [{}], nodes: []};
		for (let r = 0; r < 8; r++) g.tags.push({rank: String(r), device: "GPU-" + r});
		const add = (p, level, name) => {
			for (let i = 0; i < 10; i++) {
				const f = g.frames.push({kind: kinds[level], name: name + i, full: level === 4 ? "void " + name + i + "<float, 4>(int)" : ""}) - 1;
				const n = g.nodes.push({p, f, v: [0, 0, 0]}) - 1;
				if (level < 4) add(n, level + 1, name + i + ".");
				else [g.nodes[n].v, g.nodes[n].g, g.nodes[n].t] = [[1e6 * (1 + n % 7) * (second && n % 2 ? 2 : 1), n % 11, n % 13], 1 + n % 8, n.toString(16).padStart(32, "0")];
			}
		};
		add(-1, 0, "kernel");
		return g;
	}`)
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
		return err
	}))
	cpu := func() (seconds float64) {
		b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			r, err := cdp.Call(ctx, t, performance.GetMetrics, cdp.Empty{})
			for _, m := range r.Metrics {
				if m.Name == "TaskDuration" {
					seconds = m.Value
				}
			}
			return err
		}))
		return seconds
	}
	measure := func(how string) float64 {
		b.run(`window.took = 0; flame.made = null; flame.zoom = []; performance.clearMarks(); performance.mark("data"); ` + how +
			`; draw("flames"); requestAnimationFrame(() => setTimeout(() => { performance.mark("painted"); window.took = performance.measure("paint", "data", "painted").duration; }))`)
		b.until(`window.took > 0`)
		return eval[float64](b, `window.took`)
	}
	b.run(`window.graphs = [window.many(false), window.many(true)]`)
	require.Equal(t, 100_000, eval[int](b, `graphs[0].nodes.filter((n) => n.v[0] > 0).length`))
	want := eval[float64](b, `graphs[0].nodes.reduce((t, n) => t + n.v[0], 0)`)
	for _, x := range []struct{ name, how string }{
		{"call stack", `state.flames = graphs[0]`},
		{"call stack again", `0`},
		{"operation", `flame.group = "operation"`},
		{"rank", `flame.group = "rank"`},
		{"kernel", `flame.group = "kernel"`},
		{"difference", `flame.group = "call stack"; state.flamesBefore = graphs[1]`},
	} {
		before := cpu()
		took := measure(x.how)
		t.Logf("%-16s %4.0f ms from data to paint, %4.0f ms of CPU of the page, %d rects", x.name, took, 1000*(cpu()-before),
			eval[int](b, `document.querySelectorAll("#flames svg.flames rect").length`))
		assert.LessOrEqual(t, eval[int](b, `document.querySelectorAll("#flames svg.flames rect").length`), 4000, x.name)
		assert.Less(t, eval[int](b, `document.querySelectorAll("#flames *").length`), 12_200, x.name)
		assert.InEpsilon(t, want, eval[float64](b, `flame.made.root.sum`), 1e-9, x.name)
	}
	assert.Equal(t, 8, eval[int](b, `(() => { flame.group = "rank"; flame.made = null; draw("flames");
		return new Set([...flameMap(flame.made.root).values()].flatMap((n) => [...flameMap(n).values()].map((c) => c.frame.name))).size; })()`))
}
