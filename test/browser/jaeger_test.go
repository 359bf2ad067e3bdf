// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/jaeger"
	"github.com/otelgpu/otelgpu/test/internal/jaeger/jaegertest"
)

// Tests config/jaeger-ui.json in the real Jaeger: measured tags of a span come first, and tags of a
// GPU span link to the matching view of this project's page.
func TestIntegrationJaegerShowsMeasuredTagsFirstAndLinksToThePage(t *testing.T) {
	integration.Need(t)
	if allocator == nil {
		t.Skip("no Chromium is installed ($CHROMIUM, or chromium in the path): Jaeger is not opened in a browser")
	}
	if assets := os.Getenv(jaeger.PageVariable); assets == "" {
		t.Skip(jaeger.PageVariable + " does not name Jaeger's page, of which its Go module has a placeholder")
	} else if _, err := os.Stat(filepath.Join(assets, "index.html")); err != nil {
		t.Fatal(err)
	}
	j := jaegertest.Start(t)
	td := spans(t, "training", "GPU-0", 0, span{
		"gemm", "section", time.Now().Add(-time.Minute), time.Second, 9,
		map[string]any{
			"gpu.energy": 2.5, "gpu.power": 412.0, "gpu.roofline.bound": "compute", "gpu.stream.id": 7, "hw.id": "GPU-0",
			"a.tag": "of the alphabet's beginning",
		},
	})
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	resp, err := http.Post("http://"+j.OTLPHTTP+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)

	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	id := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).TraceID()
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(fmt.Sprintf("http://%s/trace/%s", j.Query, id)))
	b.until(`document.querySelector(".span-row .span-view") !== null`)
	b.run(`document.querySelector(".span-row .span-view").click()`)
	b.until(`document.querySelector(".AccordianKeyValues--header") !== null`)
	b.run(`document.querySelector(".AccordianKeyValues--header").click()`)
	const keys = `[...document.querySelectorAll(".KeyValueTable--keyColumn")].map((n) => n.textContent)`
	b.until(keys + `.length > 0`)
	require.Equal(t, []string{
		"gpu.duration", "gpu.energy", "gpu.roofline.bound", "gpu.power", "gpu.operation.type", "a.tag", "gpu.stream.id",
		"hw.id",
	}, eval[[]string](b, keys))
	if *pictures != "" {
		b.picture("jaeger_tags", "body", "body")
	}

	// The page listens elsewhere in a test.
	own := serve(t, busy(t))
	for tag, section := range map[string]string{"hw.id": "devices", "gpu.roofline.bound": "operations"} {
		link := eval[string](b, fmt.Sprintf(
			`[...document.querySelectorAll(".KeyValueTable tr")].find((r) => r.textContent.startsWith(%q)).querySelector("a").href`, tag))
		at, found := strings.CutPrefix(link, "http://localhost:9465/")
		require.True(t, found, link)
		require.Equal(t, "#"+section, at)
		page := open(t, own+"/"+at, 1280, 900)
		page.until(`!document.querySelector("` + at + `").hidden`)
		page.until(`Math.abs(document.querySelector("` + at + `").getBoundingClientRect().top) < innerHeight / 2`)
	}
}
