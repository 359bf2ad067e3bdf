// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

var figures = flag.Duration("figures", 0, "take figures of the page, each CPU time over this long")

// TestFigures takes the figures of docs/page.md: weight and first paint of the page and of a
// report, and the CPU time of a Collector with the page closed and open.
//
//	go test -run Figures -figures 60s -program ../../bin/otelcol-gpu -v .
func TestFigures(t *testing.T) {
	if *figures == 0 {
		t.Skip("no figures requested: -figures 60s")
	}
	needsBrowser(t)
	live := serve(t, busy(t))
	weight := 0
	for _, path := range []string{"/", "/app.js", "/app.css"} {
		weight += len(fetch(t, live+path))
	}
	t.Logf("page: %.1f kB, of one device and minute of state %.1f kB more; first paint after %.0f ms", float64(weight)/1e3,
		float64(len(fetch(t, live+"/api/state?range=60")))/1e3, firstPaint(t, live))
	book := page.NewBook()
	read(t, book, recorded.Path(t, "kineto", "hta/nccl_parser_config/nccl_data.json.gz"))
	report := write(t, book.State(nil))
	info, err := os.Stat(strings.TrimPrefix(report, "file://"))
	require.NoError(t, err)
	t.Logf("report: %.1f kB, first paint after %.0f ms", float64(info.Size())/1e3, firstPaint(t, report))

	for _, rate := range []int{1_000, 100_000} {
		otlp, err := freeport.Address()
		require.NoError(t, err)
		address, err := freeport.Address()
		require.NoError(t, err)
		config := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {gpu_page: {endpoint: %q}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [gpu_page]}}
`, otlp, address), 0o600))
		collector := exec.CommandContext(t.Context(), distribution(t), "--config", config)
		require.NoError(t, collector.Start())
		page := "http://" + address
		require.Eventually(t, func() bool {
			r, err := http.Get(page)
			return err == nil && r.Body.Close() == nil
		}, patience, 50*time.Millisecond)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); load(ctx, t, "http://"+otlp+"/v1/traces", rate) }()
		closed, sentClosed := used(t, collector.Process.Pid, page)
		b := open(t, page, 1300, 1000)
		opened, sentOpen := used(t, collector.Process.Pid, page)
		b.do(chromedp.Navigate("about:blank")) // or the page reports that the Collector has stopped
		stop()
		<-ended
		require.NoError(t, collector.Process.Kill())
		_ = collector.Wait()
		t.Logf("%d spans a second wanted: closed %.2f %% of a core at %.0f, open %.2f %% at %.0f", rate, 100*closed,
			sentClosed, 100*opened, sentOpen)
	}
}

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return b
}

// firstPaint returns the first contentful paint in ms, the minimum of five.
func firstPaint(t *testing.T, address string) float64 {
	t.Helper()
	least := 1e9
	for range 5 {
		b := open(t, address, 1300, 1000)
		b.until(`performance.getEntriesByName("first-contentful-paint").length > 0`)
		least = min(least, eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`))
	}
	return least
}

// used returns the CPU time of a process per second, and how many spans per second arrived at the
// page.
func used(t *testing.T, pid int, page string) (share, rate float64) {
	t.Helper()
	spans := func() float64 {
		_, after, _ := strings.Cut(string(fetch(t, page+"/api/state?range=10")), `"health":{"spans":`)
		n, _, _ := strings.Cut(after, ",")
		v, err := strconv.ParseFloat(n, 64)
		require.NoError(t, err)
		return v
	}
	cpu := func() float64 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		_, after, _ := strings.Cut(string(b), ") ")
		fields, ticks := strings.Fields(after), 0.0
		for _, f := range fields[11:13] { // utime and stime, 1/100 s each
			v, err := strconv.ParseFloat(f, 64)
			require.NoError(t, err)
			ticks += v
		}
		return ticks / 100
	}
	time.Sleep(2 * time.Second)
	began, before, sent := time.Now(), cpu(), spans()
	time.Sleep(*figures)
	long := time.Since(began).Seconds()
	return (cpu() - before) / long, (spans() - sent) / long
}

// load sends spans of twelve operations ten times a second.
func load(ctx context.Context, t *testing.T, url string, rate int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var body []byte
	for i := 0; ; i++ {
		if i%50 == 0 { // so that their times stay in the range
			list := make([]span, rate/10)
			for j := range list {
				list[j] = span{
					fmt.Sprint("operation ", j%12), "section", time.Now().Add(-time.Duration(j) * time.Microsecond),
					time.Millisecond, byte(j),
					map[string]any{
						"gpu.flop.count": 1e9, "gpu.flop.precision": "bf16", "gpu.io.size": 1_000_000,
						"gpu.roofline.bound": "memory", "gpu.roofline.utilization": 0.5, "gpu.energy": 1.5, "gpu.power": 400.0,
					},
				}
			}
			b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(spans(t, "svc", "GPU-0", 0, list...))
			if err != nil {
				t.Error(err)
				return
			}
			body = b
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r, err := http.Post(url, "application/x-protobuf", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
}
