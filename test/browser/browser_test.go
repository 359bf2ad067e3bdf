// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience is the time limit of a wait for a state of the page, also on a slow machine.
const patience = 60 * time.Second

// binary finds a Chromium: $CHROMIUM, or one of the usual names.
func binary() string {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

var allocator context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	if binary() == "" || testing.Short() {
		os.Exit(m.Run())
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(binary()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-component-update", true),
		chromedp.Flag("enable-unsafe-swiftshader", true), // speedscope draws with WebGL
		chromedp.WSURLReadTimeout(patience))...)
	first, end := chromedp.NewContext(ctx) // its process contains the tabs of all tests
	allocator = first
	code := 1
	if err := chromedp.Do(first); err != nil {
		fmt.Fprintln(os.Stderr, "cannot start", binary()+":", err)
	} else {
		code = m.Run()
	}
	end()
	cancel()
	os.Exit(code)
}

// tab is a tab of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// open opens an address in a new tab of this size. Console output, exceptions and policy violations
// of the page fail the test.
func open(t *testing.T, address string, width, height int64, before ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	needsBrowser(t)
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithListener(func(e any) {
		switch e := e.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				b.problem("console.%s: %s", e.Type, a.Value)
			}
		case *runtime.EventExceptionThrown:
			b.problem("thrown: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			b.problem("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		case *page.EventJavascriptDialogOpening:
			b.problem("a dialog: %s", e.Message)
		}
	}))
	b.ctx = ctx
	t.Cleanup(func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.problems, "the console")
	})
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
		return err
	}), chromedp.EmulateViewport(width, height))
	b.do(before...)
	b.do(chromedp.Navigate(address))
	b.until(`Number(document.documentElement.dataset.drawn || 0) > 0`)
	return b
}

func needsBrowser(t *testing.T) {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("the page is opened in a browser in long runs only")
	case allocator == nil:
		t.Skip("no Chromium is installed ($CHROMIUM, or chromium in the path): the page is not opened in a browser")
	}
}

func (b *tab) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// prefers sets the preferred color scheme.
func prefers(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// run runs a statement.
func (b *tab) run(statement string) {
	b.t.Helper()
	eval[bool](b, "(() => {"+statement+"; return true; })()")
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return v
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !eval[bool](b, "!!("+expression+")") { // null is false
		if time.Now().After(deadline) {
			b.t.Fatalf("never true: %s\n%s", expression, eval[string](b, `document.body.innerText.slice(0, 3000)`))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// redraw draws all sections, also the ones that are out of sight.
func (b *tab) redraw() {
	b.t.Helper()
	b.run(`draw()`)
	b.until(`!pending.size`)
}

// text returns the visible text of the elements of a selector.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((n) => n.textContent).join("\n")`,
		selector))
}

// column returns a column of the first table of a section.
func (b *tab) column(section, title string) []string {
	b.t.Helper()
	return eval[[]string](b, fmt.Sprintf(`(() => {
		const table = document.querySelector("#%s table"), at = [...table.querySelectorAll("th")].findIndex((n) => n.textContent === %q);
		return [...table.querySelectorAll("tbody tr")].map((n) => n.children[at].textContent);
	})()`, section, title))
}

// press clicks the button with a text in a section.
func (b *tab) press(section, text string) {
	b.t.Helper()
	b.run(fmt.Sprintf(`[...document.querySelectorAll("#%s button")].find((n) => n.textContent === %q).click()`, section,
		text))
}

// middle returns the center of the nth element of a selector, in window coordinates.
func (b *tab) middle(selector string, n int) (x, y float64) {
	b.t.Helper()
	p := eval[[]float64](b, fmt.Sprintf(`(() => {
		const n = document.querySelectorAll(%q)[%d];
		n.scrollIntoView({block: "center"});
		const b = n.getBoundingClientRect();
		return [b.left + b.width / 2, b.top + b.height / 2];
	})()`, selector, n))
	return p[0], p[1]
}

// tip returns the tooltip of the page at a position in the window.
func (b *tab) tip(x, y float64) string {
	b.t.Helper()
	b.do(chromedp.MouseEvent("mouseMoved", x-1, y), chromedp.MouseEvent("mouseMoved", x, y))
	b.until(`!document.getElementById("tip").hidden`)
	return eval[string](b, `[...document.getElementById("tip").children].map((n) => n.textContent).join("\n")`)
}

// drag presses the mouse button, moves horizontally, and releases it.
func (b *tab) drag(x0, x1, y float64) {
	b.t.Helper()
	b.do(chromedp.MouseEvent("mouseMoved", x0, y), chromedp.MouseEvent("mousePressed", x0, y, chromedp.ButtonLeft,
		chromedp.ClickCount(1)))
	for i := 1; i <= 5; i++ {
		b.do(chromedp.MouseEvent("mouseMoved", x0+(x1-x0)*float64(i)/5, y, chromedp.ButtonLeft))
	}
	b.do(chromedp.MouseEvent("mouseReleased", x1, y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
}

// fits asserts that the page is not wider than its window.
func (b *tab) fits() {
	b.t.Helper()
	wide := eval[[]string](b,
		`[...document.querySelectorAll("body *")].filter((n) => n.getBoundingClientRect().right > innerWidth + 1 && !n.closest(".scroll") && !n.closest("[hidden]"))
		.map((n) => n.outerHTML.slice(0, 120))`)
	assert.Empty(b.t, wide, "what is wider than the window of %s", b.text("title"))
	cut := eval[[]string](b,
		`[...document.querySelectorAll("caption")].filter((n) => {
			const text = document.createRange();
			text.selectNodeContents(n);
			return text.getBoundingClientRect().right > n.closest(".scroll").getBoundingClientRect().right + 1;
		}).map((n) => n.textContent)`)
	assert.Empty(b.t, cut, "captions that end outside of their table's view, of %s", b.text("title"))
}

// hangsTogether asserts what a screen reader needs.
func (b *tab) hangsTogether() {
	b.t.Helper()
	faults := eval[[]string](b, `(() => {
		const faults = [], say = (n, what) => faults.push(what + ": " + n.outerHTML.slice(0, 160)), seen = (n) => n.closest("[hidden]") === null;
		for (const n of document.querySelectorAll("section")) if (seen(n) && !document.getElementById(n.getAttribute("aria-labelledby"))) say(n, "a section without a heading");
		for (const n of document.querySelectorAll("svg, canvas")) if (seen(n) && !n.closest("[aria-hidden]") && !n.getAttribute("aria-label")) say(n, "a drawing without words");
		for (const n of document.querySelectorAll("button, a")) if (seen(n) && !n.textContent.trim() && !n.getAttribute("aria-label")) say(n, "a button without a name");
		for (const n of document.querySelectorAll("[role=img] [tabindex], [role=img] [role=button], [role=img] a")) say(n, "an element in an image, which assistive technology hides");
		for (const n of document.querySelectorAll("input, select")) if (seen(n) && !n.closest("label")) say(n, "an input without a label");
		for (const n of document.querySelectorAll("table")) if (!n.caption || ![...n.querySelectorAll("th")].every((h) => h.scope)) say(n, "a table without caption or scopes");
		for (const n of document.querySelectorAll("[tabindex='0'], [role=button]")) if (seen(n) && !n.getAttribute("aria-label") && !n.textContent.trim()) say(n, "a stop without a name");
		return faults;
	})()`)
	assert.Empty(b.t, faults)
}

// readable asserts that no label of a drawing is truncated or covers another.
func (b *tab) readable() {
	b.t.Helper()
	faults := eval[[]string](b, `(() => {
		const faults = [];
		for (const drawing of document.querySelectorAll("main svg")) {
			if (drawing.closest("[hidden]") || drawing.closest("details:not([open])")) continue;
			const box = drawing.getBoundingClientRect();
			const labels = [...drawing.querySelectorAll("text")].map((n) => [n.textContent, n.getBoundingClientRect()]);
			labels.forEach(([t, r], i) => {
				if (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 3 || r.bottom > box.bottom + 3) faults.push(drawing.getAttribute("aria-label") + ": cut: " + t);
				for (const [u, q] of labels.slice(0, i)) if (r.left < q.right - 1 && q.left < r.right - 1 && r.top < q.bottom - 4 && q.top < r.bottom - 4) faults.push(drawing.getAttribute("aria-label") + ": " + t + " lies over " + u);
			});
		}
		return faults;
	})()`)
	assert.Empty(b.t, faults)
}

// contrast returns the WCAG 2 contrast ratio of text and its background.
func (b *tab) contrast(selector string) float64 {
	b.t.Helper()
	return eval[float64](b, fmt.Sprintf(`(() => {
		const numbers = (c) => c.match(/[\d.]+/g).map(Number), light = (c) => numbers(c).slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
		const n = document.querySelector(%q);
		let back = n;
		while (back && [undefined, 0].includes(numbers(getComputedStyle(back).backgroundColor)[3] ?? 1)) back = back.parentElement;
		const a = light(getComputedStyle(n).color), b = light(getComputedStyle(back || document.body).backgroundColor);
		return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
	})()`, selector))
}

func lines(s string) []string { return strings.Split(s, "\n") }
