// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/test/internal/jaeger"
	"github.com/otelgpu/otelgpu/test/internal/jaeger/jaegertest"
)

var (
	pictures = flag.String("pictures", "", "folder that pictures are written to, as docs/images; none are taken without")
	program  = flag.String("program", "", "otelcol-gpu, whose demo and reports the pictures are of")
)

// picture writes a part of the page, from the top of one element to the bottom of another, as a PNG
// with at most 256 colors.
func (b *tab) picture(name, from, to string) {
	b.t.Helper()
	box := eval[[]float64](b, `(() => {
		scrollTo(0, 0);
		const a = document.querySelector("`+from+`").getBoundingClientRect(), b = document.querySelector("`+to+`").getBoundingClientRect();
		return [Math.max(0, Math.min(a.left, b.left) - 8), Math.max(0, a.top - 8), Math.min(innerWidth, Math.max(a.right, b.right) + 8), b.bottom + 8];
	})()`)
	var shot string
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		beyond := true
		r, err := cdp.Call(ctx, t, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
			Clip: &cdppage.Viewport{
				X: box[0], Y: box[1], Width: box[2] - box[0], Height: box[3] - box[1],
				Scale: 1,
			},
			CaptureBeyondViewport: &beyond,
		})
		shot = string(r.Data)
		return err
	}))
	raw := []byte(shot)
	if !bytes.HasPrefix(raw, []byte("\x89PNG")) {
		var err error
		raw, err = base64.StdEncoding.DecodeString(shot)
		require.NoError(b.t, err)
	}
	img, err := png.Decode(bytes.NewReader(raw))
	require.NoError(b.t, err)
	var out bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, fewColours(img)))
	require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), out.Bytes(), 0o644))
	// The titles in the picture, which TestThePicturesSayWhatThePageSays in internal/page looks
	// for.
	titles := eval[[]string](b, fmt.Sprintf(`[...document.querySelectorAll("main > section > h2")].filter((n) => {
		const r = n.getBoundingClientRect();
		return r.height > 0 && r.top >= %g && r.bottom <= %g;
	}).map((n) => n.textContent.trim()).filter((t, i, all) => t && all.indexOf(t) === i)`, box[1], box[3]))
	if len(titles) > 0 {
		require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".txt"), []byte(strings.Join(titles, "\n")+"\n"), 0o644))
	}
	assert.Less(b.t, out.Len(), 150_000, name)
	b.t.Logf("%s: %s, %d kB", name, img.Bounds().Size(), out.Len()/1000)
}

// fewColours keeps the 256 most frequent colors, which suffice for a drawn page, and replaces
// others with the nearest one.
func fewColours(img image.Image) *image.Paletted {
	count := map[color.RGBA]int{}
	bounds := img.Bounds()
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(img.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[at(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range most[:min(256, len(most))] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(bounds, palette)
	nearest := map[color.RGBA]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := at(x, y)
			i, ok := nearest[c]
			if !ok {
				i = uint8(palette.Index(c))
				nearest[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	return out
}

// output collects the output of a program.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// needsPictures skips a test that takes pictures of docs/images, unless they are requested:
//
//	make pictures
func needsPictures(t *testing.T) {
	t.Helper()
	if *pictures == "" || *program == "" {
		t.Skip("no pictures requested: -pictures DIR -program otelcol-gpu")
	}
}

// TestPicturesOfReports takes pictures of reports on recorded traces, and of the page of an
// inference server.
func TestPicturesOfReports(t *testing.T) {
	needsPictures(t)
	qwen := recorded.Path(t, "kineto", "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
	ranks := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(qwen))), "param", "dlrm_8ranks")
	without := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
	with := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz")
	training := recorded.Path(t, "kineto", "hta/nccl_parser_config/nccl_data.json.gz")
	convert := func(args ...string) string {
		out := t.TempDir()
		text, err := exec.CommandContext(t.Context(), *program, append([]string{"convert", "--html", "--out", out},
			args...)...).CombinedOutput()
		require.NoError(t, err, string(text))
		return "file://" + out
	}

	engine := served(t)

	b := open(t, convert(training)+"/report.html", 1280, 900)
	b.picture("report", "header", "#timeline")
	b = open(t, convert(qwen)+"/report.html", 1280, 900)
	b.picture("roofline", "#profileRoofline", "#profileRoofline")
	files, err := filepath.Glob(filepath.Join(ranks, "worker?.pt.trace.json.gz"))
	require.NoError(t, err)
	b = open(t, convert(files...)+"/report.html", 1280, 900)
	b.picture("ranks", "#profileRanks", "#profileRanks")
	b = open(t, convert("--compare", without, with)+"/compare.html", 1280, 900)
	b.picture("compare", "#comparison .headline", "#comparison figure")

	b = open(t, engine, 1280, 900)
	b.until(`state && state.requests.length === 7 && state.requests.every((q) => q.energy)`)
	b.picture("llm", "#requests", "#requests")
}

// TestPicturesOfTheDemo takes pictures of the demo while it runs.
func TestPicturesOfTheDemo(t *testing.T) {
	needsPictures(t)
	_, _, address := demo(t, "--duration", "100s", "--out", t.TempDir())
	b := open(t, address, 1280, 900)
	for _, seconds := range []int{25, 53} { // each within the time limit of a test
		b.until(fmt.Sprintf(`state && state.devices.length > 0 && state.devices[0].covered.filter((v) => v !== null).length >= %d`,
			seconds))
	}
	b.until(`state.findings.length === 4`)
	b.run(`live.paused = true`)
	b.redraw()
	b.picture("page", "header", "#operations")
	b.picture("devices", "#when", "#when")
	b.picture("requests", "#requests", "#requests")
	b.press("flames", "energy")
	b.picture("flames", "#flames", "#flames .says")
	b.do(prefers("dark"))
	b.until(`getComputedStyle(document.body).backgroundColor === "rgb(15, 18, 22)" && !pending.size`)
	b.picture("page-dark", "header", "#when")
}

// TestIntegrationPicturesOfATrace takes the picture of a training step of the demo in Jaeger.
func TestIntegrationPicturesOfATrace(t *testing.T) {
	needsPictures(t)
	assets := os.Getenv(jaeger.PageVariable)
	if assets == "" {
		t.Skip(jaeger.PageVariable + " does not name Jaeger's page, of which its Go module has a placeholder")
	}
	j := jaegertest.Start(t)
	cmd := exec.CommandContext(t.Context(), *program, "demo", "--duration", "12s", "--out", t.TempDir(),
		"--otlp", j.OTLPGRPC)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	m := regexp.MustCompile(`pageable copies: .* \(trace ([0-9a-f]{32})\)`).FindSubmatch(text)
	require.NotNil(t, m, string(text))
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(fmt.Sprintf("http://%s/trace/%s", j.Query, m[1])))
	b.until(`document.querySelectorAll(".span-row .span-view").length > 5`)
	const row = `[...document.querySelectorAll(".span-row")].find((r) => r.textContent.includes("adamw"))`
	b.until(row + ` !== undefined`)
	b.run(row + `.querySelector(".span-view").click()`)
	b.until(`document.querySelector(".AccordianKeyValues--header") !== null`)
	b.run(`document.querySelector(".AccordianKeyValues--header").click()`)
	b.until(`document.querySelectorAll(".KeyValueTable--keyColumn").length > 0`)
	b.picture("trace", "body", "body")
}

// TestPicturesOfTraining takes pictures of the page of a job that hangs and starts again, and of
// what convert prints about the files of jobs like it.
func TestPicturesOfTraining(t *testing.T) {
	needsPictures(t)
	dumps := t.TempDir()
	page, _, otlp := pipeline(t, "training", "OTELGPU_DUMPS="+dumps)
	text, err := exec.CommandContext(t.Context(), "python3", filepath.Join("..", "..", "examples", "hang", "job.py"),
		"--otlp", "http://"+otlp, "--dumps", filepath.Join(dumps, "demo-job")).CombinedOutput()
	require.NoError(t, err, string(text))
	b := open(t, page, 1280, 900)
	b.until(`state && (state.goodput || []).some((j) => j.restarts === 1)`)
	b.run(`live.paused = true`)
	b.redraw()
	b.picture("goodput", "#goodput", "#goodput")
	b.picture("training", "#standsOut", "#when")

	for name, x := range map[string]struct {
		folder string
		says   []string // words of the program, for TestThePicturesSayWhatThePageSays
	}{
		"inspector": {recorded.Path(t, "nccl-inspector", "late-2.30"), []string{"arrives last at", "its kernels are the shortest in"}},
		"hang":      {recorded.Path(t, "flight-recorder-nccl", "missing-v2.10"), []string{"has not entered", "wait there"}},
	} {
		cmd := exec.CommandContext(t.Context(), *program, "convert", filepath.Base(x.folder))
		cmd.Dir = filepath.Dir(x.folder)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, string(text))
		shown := filepath.Join(t.TempDir(), "terminal.html")
		require.NoError(t, os.WriteFile(shown, []byte("<meta charset=utf-8><body><pre>$ otelcol-gpu convert "+filepath.Base(x.folder)+"\n"+
			html.EscapeString(strings.TrimSpace(string(text)))), 0o600))
		ctx, cancel := chromedp.NewContext(allocator)
		t.Cleanup(cancel)
		b := &tab{t: t, ctx: ctx}
		b.do(chromedp.EmulateViewport(1280, 400), chromedp.Navigate("file://"+shown))
		b.picture(name, "pre", "pre")
		for _, words := range x.says {
			assert.Contains(t, string(text), words)
		}
		require.NoError(t, os.WriteFile(filepath.Join(*pictures, name+".txt"), []byte(strings.Join(x.says, "\n")+"\n"), 0o644))
	}
}

// served returns the address of the page of the pipeline for inference servers, with vLLM's spans
// of seven requests.
func served(t *testing.T) string {
	t.Helper()
	page, otlp, _ := pipeline(t, "llm", "OTELGPU_SETTLE=6s")
	vllm := exec.CommandContext(t.Context(), "go", "test", "-count", "1", "-run", "^TestStubOfVLLM$", "./test")
	vllm.Dir = filepath.Join("..", "..")
	vllm.Env = append(os.Environ(), "GOWORK=", "FIRST_HOUR_ENDPOINT="+otlp)
	text, err := vllm.CombinedOutput()
	require.NoError(t, err, string(text))
	return page
}

// pipeline runs a ready pipeline, and returns the addresses of its page, and of OTLP over gRPC and
// HTTP.
func pipeline(t *testing.T, config string, env ...string) (page, grpc, http string) {
	t.Helper()
	free := func() string {
		address, err := freeport.Address()
		require.NoError(t, err)
		return address
	}
	page, grpc, http = free(), free(), free()
	_, telemetry, _ := strings.Cut(free(), ":")
	said := &output{}
	cmd := exec.Command(*program, "--config", config) // runs for longer than its page is open
	cmd.Env = append(append(os.Environ(), "OTELGPU_SOURCE=simulated", "OTELGPU_PAGE="+page, "OTELGPU_OTLP_GRPC="+grpc,
		"OTELGPU_OTLP_HTTP="+http, "OTELGPU_METRICS="+free(), "OTELGPU_HEALTH="+free(), "OTELGPU_TELEMETRY_PORT="+telemetry), env...)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(t, func() bool { return strings.Contains(said.String(), page) }, patience, 50*time.Millisecond)
	return "http://" + page, grpc, http
}
