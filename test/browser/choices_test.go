// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/page"
)

// in returns an action that sets the time zone of the browser.
func in(zone string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
		return err
	})
}

// downloads returns an action that saves files in a directory of the test.
func downloads(dir string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
			Behavior: "allow", DownloadPath: dir,
		})
		return err
	})
}

// saved waits for a file and returns it.
func saved(t *testing.T, path string) string {
	t.Helper()
	var text []byte
	require.Eventually(t, func() bool {
		var err error
		text, err = os.ReadFile(path)
		return err == nil && len(text) > 0
	}, patience, 50*time.Millisecond, path)
	return string(text)
}

func TestOneServiceIsChosenForOperationsStepsAndRequests(t *testing.T) {
	b := open(t, serve(t, busy(t)), 1300, 1000)
	b.until(`document.querySelectorAll("#options option").length === 3`)
	assert.Equal(t, "all\nchat\ntraining", b.text("#options option"))
	choose := func(service string) {
		b.run(`const s = document.querySelector("#options select"); s.value = "` + service +
			`"; s.dispatchEvent(new Event("change"))`)
		b.until(`state.requests.length + state.operations.length > 0 && new URLSearchParams(location.hash.slice(1)).get("service") === ` +
			`("` + service + `" || null) && document.querySelector("#options select").value === "` + service + `"`)
	}
	choose("chat")
	b.until(`document.querySelectorAll("#requests tbody tr").length === 2 && document.getElementById("operations").hidden`)
	// Sections are drawn in tasks of their own: the list of the missing ones is drawn last.
	b.until(`[...document.querySelectorAll("#none summary")].some((n) => n.textContent.includes("operations"))`)
	assert.NotContains(t, b.text("#when .name"), "Steps", "training makes the steps")
	assert.True(t, eval[bool](b, `document.getElementById("requests").compareDocumentPosition(document.getElementById("when")) === 4`),
		"without steps, requests come first")
	assert.Equal(t, "all\nchat\ntraining", b.text("#options option"), "the others can still be chosen")
	b.hangsTogether()
	choose("training")
	b.until(`document.querySelectorAll("#operations tbody tr").length === 2 && document.getElementById("requests").hidden`)
	choose("")
	b.until(`document.querySelector("#operations table") !== null && document.querySelector("#requests table") !== null`)
}

// Jobs of one service have steps and ranks of their own: job b makes two steps per second, and its
// rank 1 is slower.
func TestJobsOfOneServiceAreShownApart(t *testing.T) {
	m, now := stopped()
	for _, job := range []struct {
		id     string
		steps  int
		length [2]time.Duration
	}{{"a", 10, [2]time.Duration{900e6, 900e6}}, {"b", 20, [2]time.Duration{400e6, 450e6}}} {
		for rank, length := range job.length {
			var list []span
			for i := range job.steps {
				at := now.Add(-time.Duration(i+1) * 10 * time.Second / time.Duration(job.steps))
				list = append(list, span{"train", "step", at, length, 3, map[string]any{"gpu.step.index": 100 - i}})
			}
			td := spans(t, "training", "GPU-"+job.id, rank, list...)
			td.ResourceSpans().At(0).Resource().Attributes().PutStr("gpu.job.id", job.id)
			m.Traces(td)
		}
	}
	b := open(t, serve(t, m), 1300, 1000)
	b.until(`document.querySelector("[data-key='strip ranks']") !== null`)
	assert.Regexp(t, `Steps per second2\.0\d*job b, mean step 4\d\d ms`, b.text("#headline"))
	assert.Contains(t, b.text("#headline"), "rank 0, job a")
	names := b.text("#when .name")
	for _, want := range []string{
		"job b · 20 steps · mean 425 ms", "job a · 10 steps · mean 900 ms",
		"rank 0 of job a", "rank 1 of job b late",
	} {
		assert.Contains(t, names, want)
	}
	b.run(`document.querySelector("[data-key='slow steps']").open = true`)
	b.until(`document.querySelector("[data-key='slow steps'] tbody tr") !== null`)
	assert.Equal(t, []string{"1"}, eval[[]string](b, `[...new Set([...document.querySelectorAll("[data-key='slow steps'] tbody tr")].map((r) => r.children[3].textContent))]`),
		"the longest steps, all of job a, against the mean of their job")
}

func TestTheAddressKeepsWhatTheReaderChose(t *testing.T) {
	url := serve(t, busy(t))
	b := open(t, url, 1300, 1000)
	b.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
	b.press("range", "5 min")
	b.press("options", "UTC")
	b.press("operations", "operation")
	b.press("operations", "operation")
	b.run(`[...document.querySelectorAll("#operations button.plain")].find((n) => n.textContent === "gemm").click()`)
	address := eval[string](b, `location.href`)

	assert.Contains(t, address, "#range=300&", "after #, so that a file keeps it, too")
	again := open(t, address, 1300, 1000)
	again.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
	assert.Equal(t, []string{"layer_norm", "gemm"}, again.column("operations", "operation"))
	assert.Equal(t, "gemm", again.text("#operations tbody tr.chosen td:first-child"))
	assert.Equal(t, "5 min", again.text("#range [aria-pressed=true]"))
	assert.Equal(t, "UTC", again.text("#options [aria-pressed=true]"))
	assert.Equal(t, 300.0, eval[float64](again, `state.range`))
	again.hangsTogether()

	// The address is not trusted.
	wild := open(t, url+"#range=7&trace=%3Cb%3E&from=9&to=8&service=%3Cimg%20src=x%20onerror=alert(1)%3E&operation=x&zone=mars&"+
		"find%20operations=%3Cscript%3E&sort%20operations=-nothing&find%20devices=x&sort%20x=y", 1300, 1000)
	wild.until(`state !== null && document.querySelector("#options select") !== null`)
	assert.Equal(t, "<img src=x onerror=alert(1)>", wild.text("#options option[selected]"))
	assert.Empty(t, wild.text("main img"))
}

func TestTimesNameTheirZone(t *testing.T) {
	m, now := stopped()
	m.Traces(spans(t, "a", "GPU-0", -1, span{"gemm", "section", now.Add(-2 * time.Second), time.Second, 1, nil}))
	b := open(t, serve(t, m), 1300, 1000, in("Asia/Kolkata"))
	b.until(`document.querySelector("#when svg.strip") !== null`)
	east := now.In(time.FixedZone("", 5*3600+1800))
	assert.Contains(t, b.text("#summary"), ", at "+east.Format("15:04:05")+" UTC+05:30")
	b.press("options", "UTC")
	assert.Contains(t, b.text("#summary"), ", at "+now.UTC().Format("15:04:05")+" UTC")
	assert.NotContains(t, b.text("#summary"), "+05:30")

	west := open(t, serve(t, m), 1300, 1000, in("America/St_Johns"))
	assert.Regexp(t, `UTC−0[23]:30$`, west.text("#summary"))
}

func TestTraceIDsAreCopiedWhole(t *testing.T) {
	m := busy(t)
	for _, traceURL := range []string{traceURL, ""} {
		b := open(t, serveWith(t, m, traceURL), 1300, 1000)
		b.until(`document.querySelectorAll("#requests tbody tr").length === 2`)
		id := strings.Repeat("0", 31) + "7"
		require.Equal(t, "copy trace ID "+id, eval[string](b,
			`document.querySelector("#requests tbody .copy").getAttribute("aria-label")`))
		// A page without clipboard permission copies its selection.
		b.run(`navigator.clipboard.writeText = () => Promise.reject(new Error("denied"));
			window.copied = ""; document.addEventListener("copy", () => { window.copied = String(document.activeElement.value); });
			document.querySelector("#requests tbody .copy").focus()`)
		b.do(chromedp.KeyEvent(kb.Enter))
		b.until(`window.copied !== ""`)
		assert.Equal(t, id, eval[string](b, `window.copied`))
		b.until(`document.activeElement.matches("#requests .copy") && !document.querySelector("textarea")`)
		b.run(`navigator.clipboard.writeText = (t) => { window.copied = "clipboard " + t; return Promise.resolve(); };
			document.querySelector("#requests tbody .copy").click()`)
		b.until(`window.copied === "clipboard ` + id + `"`)
		b.hangsTogether()
		b.fits()
	}
}

func TestRowsAndThePageAreSaved(t *testing.T) {
	m := busy(t)
	m.Traces(spans(t, "sheet", "GPU-0", -1, span{
		`=HYPERLINK("x",1)`, "section", time.Now().Add(-3 * time.Second), time.Millisecond, 9, nil,
	}))
	dir := t.TempDir()
	b := open(t, serve(t, m), 1300, 1000, downloads(dir))
	b.until(`document.querySelectorAll("#operations tbody tr").length === 3`)
	b.run(`document.querySelector("[data-key='operations csv']").click()`)
	rows := strings.Split(strings.TrimSuffix(saved(t, filepath.Join(dir, "operations.csv")), "\r\n"), "\r\n")
	require.Len(t, rows, 4)
	assert.Equal(t, "operation,service,type,count,GPU time,J,own J,share,of roof,bound,B/s,FLOP/s,trace", rows[0])
	assert.True(t, strings.HasPrefix(rows[1], "gemm,training,section,100,30,200,200,0.666666666667,0.5,compute,"), rows[1])
	assert.True(t, strings.HasPrefix(rows[2], "layer_norm,training,section,100,10,100,100,0.333333333333,0.25,memory,"), rows[2])
	assert.True(t, strings.HasPrefix(rows[3], `"'=HYPERLINK(""x"",1)",sheet,section,1,0.001,`), rows[3])
	assert.Regexp(t, `,0{31}9$`, rows[3])

	b.run(`document.querySelector("[data-key='save']").click()`)
	report := saved(t, filepath.Join(dir, "otelgpu.html"))
	require.Contains(t, report, page.Mark)
	file := open(t, "file://"+filepath.Join(dir, "otelgpu.html"), 1300, 1000)
	assert.Equal(t, b.column("operations", "operation"), file.column("operations", "operation"))
	assert.Contains(t, file.text("#summary"), "recorded until")
	file.press("options", "UTC")
	assert.Equal(t, "true", eval[string](file, `document.querySelector("#options button").getAttribute("aria-pressed")`))
	file.hangsTogether()
	// A time is selected in the file, too, and a trace of it shown.
	x, y := file.middle("#when svg.strip", 0)
	file.drag(x-200, x, y)
	file.until(`Number(document.querySelector("#operations td:nth-child(4)").textContent) < 60 && !pending.size`)
	assert.Contains(t, file.text("#chosen"), "Selected ")
	file.press("chosen", "reset")
	file.until(`document.querySelector("#operations td:nth-child(4)").textContent === "100" && !pending.size`)
	file.run(`document.querySelector("#requests button.plain").click()`)
	file.until(`document.querySelectorAll("#trace .track").length > 2`)
	assert.Contains(t, file.text("#trace"), "prefill")

	b.run(`document.querySelector("[data-key='json']").click()`)
	assert.Contains(t, saved(t, filepath.Join(dir, "otelgpu.json")), `"services":["chat","sheet","training"]`)
}
