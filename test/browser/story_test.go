// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// distribution returns the program of the flag -program, or one that is built for the test.
func distribution(t *testing.T) string {
	t.Helper()
	if *program != "" {
		return *program
	}
	path := filepath.Join(t.TempDir(), "otelcol-gpu")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "otelcol-gpu")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

var pageAddress = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// demo starts the demo and returns the address of its page.
func demo(t *testing.T, args ...string) (cmd *exec.Cmd, said *output, address string) {
	t.Helper()
	said = &output{}
	cmd = exec.CommandContext(t.Context(), distribution(t), append([]string{"demo"}, args...)...)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(t, func() bool { return pageAddress.MatchString(said.String()) }, patience, 50*time.Millisecond)
	return cmd, said, pageAddress.FindString(said.String())
}

// The live page, the page as a file, the table and the findings all show the demo's script.
func TestTheDemosStoryIsOnThePageInTheTableAndInTheFindings(t *testing.T) {
	needsBrowser(t)
	out := t.TempDir()
	cmd, said, address := demo(t, "--html", "--duration", "30s", "--out", out)

	told := func(b *tab) {
		b.hangsTogether()
		for _, want := range []string{
			`late rankRank 0 of 4 is late in \d+ of \d+ steps, .* inference runs on its GPU, too`,
			`slow request[\d.]+ m?s, the median of \d+ takes [\d.]+ m?s`,
			`throttleThe only span of prefill.long ran with a throttled clock, .* \(sw_power_cap\)`,
			`pageable copiesh2d.batch moves through pageable memory at 1\d\.\d GB/s, \d+ % of the bus`,
		} {
			assert.Regexp(t, want, b.text("#standsOut"))
		}
		// Each part is also in the section for its question.
		assert.Contains(t, eval[string](b, `document.querySelector("[data-key='strip ranks']").getAttribute("aria-label")`),
			"rank 0 is the slowest")
		assert.Contains(t, b.text("#when .legend"), "more than 15 %", "late steps of the rank")
		types := b.column("operations", "type")
		for i, name := range b.column("operations", "operation") {
			switch name {
			case "h2d.batch":
				assert.Equal(t, "copy, pageable", types[i])
			case "prefill.long":
				assert.Equal(t, "1", b.column("operations", "throttled")[i])
			}
		}
		assert.Contains(t, b.column("requests", "prefill.long")[0], "ms", "the slow one took most joules")
		assert.Positive(t, eval[int](b, `document.querySelectorAll("#when .strip path.throttle").length`))
		assert.Equal(t, 4, eval[int](b, `document.querySelectorAll("#when path.level").length`))
		assert.Equal(t, 9, eval[int](b, `document.querySelectorAll("#when .strip").length`),
			"findings, four devices, steps, ranks, requests and memory")
		toldByFlames(b)
	}
	b := open(t, address, 1400, 1000)
	b.until(`flame.data && flame.data.frames.some((f) => f.name === "prefill.long")`)
	b.until(
		`state && state.findings.length === 4 && state.requests.some((q) => (q.parts || []).some((p) => p.name === "prefill.long"))`)
	b.run(`live.paused = true`)
	b.redraw()
	told(b)
	b.do(chromedp.Navigate("about:blank")) // the demo ends, and a page that queries it then logs an error

	require.NoError(t, cmd.Wait(), said.String())
	told(open(t, "file://"+filepath.Join(out, "report.html"), 1400, 1000))
	for _, want := range []string{
		`(?m)^train .* rank 0 is late by [\d.]+ms$`, `(?m)^prefill.long .* throttled$`, `(?m)^  h2d.batch .* pageable$`,
		`(?m)^inference +\d+ +[\d.]+ ms +[\d.]+ m?s$`, // the slowest request and the median
		`(?m)^  late rank: rank 0 of 4 `, `(?m)^  slow request: `, `(?m)^  throttle: `, `(?m)^  pageable copies: `,
	} {
		assert.Regexp(t, want, said.String())
	}
}

// toldByFlames finds each part of the demo's script in the flame graph.
func toldByFlames(b *tab) {
	t := b.t
	t.Helper()
	find := func(text string) string {
		b.run(fmt.Sprintf(`(() => { const n = document.querySelector("#flames input"); n.value = %q; n.dispatchEvent(new Event("input", {bubbles: true})); })()`,
			text))
		return b.text("#flames .says")
	}
	// sums returns the values of a frame by the frames two levels above it: the tags that group
	// stacks.
	sums := func(name string) map[string]float64 {
		return eval[map[string]float64](b, fmt.Sprintf(`(() => {
			const out = {}, visit = (n, tag) => {
				if (n.frame.name === %q) out[tag] = (out[tag] || 0) + n.sum;
				else for (const c of flameMap(n).values()) visit(c, c.frame.kind === "tag" ? c.frame.name : tag);
			};
			if (!flame.made) draw("flames"); // a refresh arrived and is not drawn yet
			visit(flame.made.root, "");
			return out;
		})()`, name))
	}
	// The slow request has the one long prefill, whose example is the trace of the finding on its
	// clock.
	b.press("flames", "GPU time")
	assert.Regexp(t, `[\d.]+.m?s \([\d.]+.%\) in frames whose names contain this`, find("prefill.long"))
	b.run(`(() => {
		const path = [], visit = (n) => { if (n.frame.name === "prefill.long") { flame.at = flamePath(n); return; } for (const c of flameMap(n).values()) visit(c); };
		if (!flame.made) draw("flames");
		visit(flame.made.root);
		draw("flames");
	})()`)
	trace := eval[string](b, `state.findings.find((f) => f.kind === "throttle").trace`)
	assert.Contains(t, b.text("#flames .says"), "example trace "+trace[:8])
	// The pageable copy is marked in its name.
	assert.Contains(t, find("h2d.batch (pageable)"), "in frames whose names contain this")
	assert.NotEmpty(t, sums("h2d.batch (pageable)"))
	find("")
	// The throttling: by time and by energy, the long prefill ran with a limited clock.
	for _, kind := range []string{"energy", "GPU time"} {
		b.press("flames", kind)
		b.press("flames", "throttle")
		long := sums("prefill.long")
		assert.Greater(t, long["throttled (sw_power_cap)"], 2*long[""], kind) // a busy machine samples the clock late
	}
	// The late rank computes longer, and the others wait for it.
	b.press("flames", "rank")
	backward, wait := sums("backward"), sums("comm")
	assert.Len(t, backward, 4)
	for _, other := range []string{"rank 1", "rank 2", "rank 3"} {
		assert.Greater(t, backward["rank 0"], 1.05*backward[other], other)
		assert.Greater(t, wait[other], wait["rank 0"], other)
	}
	b.press("flames", "call stack")
}
