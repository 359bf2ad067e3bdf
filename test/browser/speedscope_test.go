// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/page"
)

// speedscope returns the folder of the built page of speedscope: $OTELGPU_SPEEDSCOPE, or the npm
// package.
func speedscope(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("OTELGPU_SPEEDSCOPE"); path != "" {
		return path
	}
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("no npm, and OTELGPU_SPEEDSCOPE names no built speedscope: it does not open the file")
	}
	dir := t.TempDir()
	npm := exec.CommandContext(t.Context(), "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund",
		"--omit=optional", "--prefix", dir, "speedscope@1.25.0")
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("speedscope cannot be installed: %v: %s", err, out)
	}
	return filepath.Join(dir, "node_modules", "speedscope", "dist", "release")
}

// Speedscope opens the page's pprof file, shows the selected type of values, and has the page's
// totals.
func TestSpeedscopeOpensThePagesProfile(t *testing.T) {
	needsBrowser(t)
	release := speedscope(t)
	now := time.Now()
	m := page.NewWithClock(func() time.Time { return now })
	energy := func(joules float64) map[string]any {
		return map[string]any{"gpu.energy": joules, "gpu.self_energy": joules}
	}
	m.Traces(spans(t, "chat", "GPU-0", -1,
		span{"gemm", "section", now.Add(-60 * time.Second), 6 * time.Second, 1, energy(3)},
		span{"norm <b>", "section", now.Add(-54 * time.Second), 2 * time.Second, 2, energy(9)},
	))
	now = now.Add(10 * time.Second)
	handler := page.Handler(m, "")
	files := http.FileServer(http.Dir(release))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pprof" {
			handler.ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	for kind, want := range map[string][]string{
		"gpu_time":   {"6.00s", "75%", "gemm", "2.00s", "25%", "norm <b>", "8.00s", "100%", "chat"},
		"gpu_energy": {"9,000,000", "75%", "norm <b>", "3,000,000", "25%", "gemm", "12,000,000", "100%", "chat"},
	} {
		b := elsewhere(t, fmt.Sprintf("%s/?#profileURL=%s%%2Fpprof%%3Ftype%%3D%s", srv.URL, srv.URL, kind))
		b.until(`/Sandwich/.test(document.body.innerText) || /Something went wrong/.test(document.body.innerText)`)
		b.run(`[...document.querySelectorAll("div")].filter((n) => /Sandwich$/.test(n.textContent)).pop().click()`)
		b.until(`document.querySelector("table, tbody") !== null && /chat/.test(document.body.innerText)`)
		text := b.text("table")
		for _, x := range want {
			assert.Contains(t, text, x, kind)
		}
	}
}

// elsewhere opens a third-party page in a new tab, ignoring its console output.
func elsewhere(t *testing.T, address string) *tab {
	t.Helper()
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(allocator)
	b.ctx = ctx
	t.Cleanup(cancel)
	b.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(address))
	return b
}
