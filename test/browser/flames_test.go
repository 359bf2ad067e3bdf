// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// labels are the frames that are drawn, from the top, with the width of each in pixels.
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
	assert.Equal(t, "http://jaeger.test/trace/00000000000000000000000000000005",
		eval[string](b, `document.querySelector("#flames .says a").href`))
	b.press("flames", "show all")
	b.until(`document.querySelectorAll("#flames svg.flames rect").length === 4`)

	// By energy: what takes less time takes more joules.
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

	// Search sums what it finds.
	b.run(`const n = document.querySelector("#flames input"); n.value = "NORM"; n.dispatchEvent(new Event("input", {bubbles: true}))`)
	b.until(`document.querySelectorAll("#flames rect.found").length === 1`)
	assert.Contains(t, b.text("#flames .says"), "2 s (25 %) in frames with this in their name")
	b.run(`const n = document.querySelector("#flames input"); n.value = ""; n.dispatchEvent(new Event("input", {bubbles: true}))`)

	// By kernel, the stack is upside down.
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

// A flame graph of as many nodes as a page sends, with the names of hostile programs in it.
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
		`(() => { flame.made = null; const t = performance.now(); draw(); return performance.now() - t; })()`),
		eval[float64](b, `(() => { const t = performance.now(); draw(); return performance.now() - t; })()`))
	assert.Positive(t, eval[int](b, `document.querySelectorAll("#flames rect.fmore").length`))
	b.press("flames", "as shares")
	b.until(`document.querySelectorAll("#flames rect.fmore").length === 0`)
	b.fits()
	b.hangsTogether()
	require.Empty(t, eval[[]string](b, `[...document.querySelectorAll("#flames a")].map((n) => n.href)`), "no trace has this ID")
}
