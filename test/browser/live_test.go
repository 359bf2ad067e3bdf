// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/page"
)

const traceURL = "http://jaeger.test/trace/{traceID}"

var hostile = []string{
	`</script><script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`, "javascript:alert(1)",
	"\u202egpj.exe", "{{constructor}}",
	strings.Repeat("very_long_name<", 200), "a\u2028b\x1b[31m",
}

// span is one span of a device.
type span struct {
	name, kind string
	start      time.Time
	length     time.Duration
	trace      byte
	attributes map[string]any
}

func spans(t testing.TB, service, device string, rank int, list ...span) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	require.NoError(t, rs.Resource().Attributes().FromRaw(map[string]any{
		"service.name": service, "gpu.job.rank": rank,
		"gpu.job.world_size": 2,
	}))
	ss := rs.ScopeSpans().AppendEmpty()
	require.NoError(t, ss.Scope().Attributes().FromRaw(map[string]any{
		"hw.id": device, "hw.name": device,
		"hw.model": "NVIDIA H100 80GB HBM3", "gpu.timing.source": "cuda_event",
	}))
	for i, s := range list {
		out := ss.Spans().AppendEmpty()
		out.SetName(s.name)
		out.SetTraceID(pcommon.TraceID{15: s.trace})
		out.SetSpanID(pcommon.SpanID{6: byte(i >> 8), 7: byte(i + 1)})
		out.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
		out.SetEndTimestamp(pcommon.NewTimestampFromTime(s.start.Add(s.length)))
		require.NoError(t, out.Attributes().FromRaw(s.attributes))
		if s.kind != "" {
			out.Attributes().PutStr("gpu.operation.type", s.kind)
		}
		if s.kind == "section" {
			out.Attributes().PutDouble("gpu.duration", s.length.Seconds())
		}
	}
	return td
}

func gauge(name, device string, v float64, at time.Time) pmetric.Metrics {
	md := pmetric.NewMetrics()
	x := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	x.SetName(name)
	p := x.SetEmptyGauge().DataPoints().AppendEmpty()
	p.SetDoubleValue(v)
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	p.Attributes().PutStr("hw.id", device)
	return md
}

// stopped returns a model with a stopped clock, so that nothing expires on a slow machine.
func stopped() (*page.Model, time.Time) {
	now := time.Now()
	return page.NewWithClock(func() time.Time { return now }), now
}

// busy returns a model with a minute of a training job on two ranks and of a service with two
// requests.
func busy(t testing.TB) *page.Model {
	m, now := stopped()
	gemm := map[string]any{
		"gpu.flop.count": 4e9, "gpu.flop.precision": "bf16", "gpu.io.size": 1_000_000,
		"gpu.roofline.bound": "compute", "gpu.roofline.utilization": 0.5, "gpu.energy": 2.0,
	}
	norm := map[string]any{
		"gpu.flop.count": 1e6, "gpu.flop.precision": "bf16", "gpu.io.size": 50_000_000,
		"gpu.roofline.bound": "memory", "gpu.roofline.utilization": 0.25, "gpu.energy": 1.0,
	}
	for rank, device := range []string{"GPU-0", "GPU-1"} {
		for i := range 50 {
			at := now.Add(-time.Duration(i+2) * time.Second)
			list := []span{
				{"gemm", "section", at, 300 * time.Millisecond, 1, gemm},
				{"layer_norm", "section", at.Add(300 * time.Millisecond), 100 * time.Millisecond, 2, norm},
				{
					"train", "step", at, time.Duration(800+100*rank) * time.Millisecond, 3,
					map[string]any{
						"gpu.step.index": 100 - i, "gpu.step.phase.duration.forward": 0.3,
						"gpu.step.phase.duration.backward": 0.4, "gpu.energy": 300.0,
					},
				},
			}
			m.Traces(spans(t, "training", device, rank, list...))
			m.Metrics(gauge("hw.gpu.utilization", device, 0.6, at))
			m.Metrics(gauge("hw.power", device, 350+float64(i), at))
			m.Metrics(gauge("hw.gpu.memory.usage", device, float64(20+10*rank)*(1<<30), at))
			m.Metrics(gauge("hw.gpu.memory.limit", device, 80*(1<<30), at))
		}
	}
	m.Traces(spans(t, "chat", "GPU-0", -1,
		span{
			"prefill", "share", now.Add(-3 * time.Second), time.Second, 7,
			map[string]any{
				"gpu.request.duration": 0.2, "gpu.energy": 30.0, "gpu.operation.items": 100,
				"gpu.operation.item.type": "token",
			},
		},
		span{
			"decode", "share", now.Add(-3 * time.Second), time.Second, 7,
			map[string]any{"gpu.request.duration": 0.4, "gpu.energy": 12.5},
		},
		span{
			"queue", "", now.Add(-3 * time.Second), 21 * time.Millisecond, 7,
			map[string]any{"gpu.request.queue.duration": 0.021},
		},
		span{
			"decode", "share", now.Add(-3 * time.Second), time.Second, 8,
			map[string]any{"gpu.request.duration": 0.1, "gpu.energy": 7.0},
		}))
	return m
}

func serve(t *testing.T, m *page.Model) string {
	t.Helper()
	return serveWith(t, m, traceURL)
}

func serveWith(t *testing.T, m *page.Model, traceURL string) string {
	t.Helper()
	srv := httptest.NewServer(page.Handler(m, traceURL))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

func TestLivePageShowsSentSpans(t *testing.T) {
	m := busy(t)
	b := open(t, serve(t, m), 1300, 1000)
	b.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
	assert.Equal(t, []string{"gemm", "layer_norm"}, b.column("operations", "operation"), "the longest first")
	assert.Equal(t, []string{"100", "100"}, b.column("operations", "count"))
	assert.Equal(t, []string{"30 s", "10 s"}, b.column("operations", "GPU time"))
	assert.Equal(t, []string{"50 %", "25 %"}, b.column("operations", "of roof"))
	assert.Equal(t, []string{"200", "100"}, b.column("operations", "own J"))
	assert.Equal(t, []string{"13.3 GFLOP/s", "10 MFLOP/s"}, b.column("operations", "FLOP/s"))
	assert.Contains(t, b.text("#operations svg text"), "FLOPs per byte of device memory")
	assert.Contains(t, b.text("#operations svg text"), "bf16: 26.7 GFLOP/s\nmemory: 2 GB/s",
		"the roofs follow from the spans' rates and shares")
	assert.Equal(t, []string{"42.5", "7"}, b.column("requests", "J"))
	assert.Equal(t, []string{"21 ms", ""}, b.column("requests", "queue"))
	assert.Equal(t, []string{"0.3", ""}, b.column("requests", "J per item"))
	assert.Contains(t, eval[string](b, `document.querySelector("[data-key='strip ranks']").getAttribute("aria-label")`),
		"rank 1 is the slowest: its own time is 1.06 times the median, 50 ms more")
	assert.Contains(t, b.text("#health dl"), "of which")
	x, y := b.middle("[data-key='strip memory']", 0)
	assert.Equal(t, []string{"GPU-1: 30 GiB, 37.5 % of 80 GiB", "GPU-0: 20 GiB, 25 % of 80 GiB"}, lines(b.tip(x, y))[1:])
	assert.Equal(t, []string{"GPU spans", "Energy", "Power", "Steps per second", "J per token", "Slowest step"},
		lines(b.text("#headline .tile > .dim:first-child")))
	assert.Equal(t, []string{"300", "1", "0.3", "0.9"}, eval[[]string](b, `[0, 3, 4, 5].map((i) => {
		const [n, unit] = document.querySelectorAll("#headline .value")[i].textContent.split(" ");
		return unit === "ms" ? String(n / 1000) : n; })`), "100 steps and 200 sections; 50 steps in 50 s; 42.5 J of 100 tokens")
	b.hangsTogether()
	b.readable()

	// A click on a heading sorts; a second click reverses the order.
	b.press("operations", "operation")
	assert.Equal(t, []string{"gemm", "layer_norm"}, b.column("operations", "operation"))
	b.press("operations", "operation")
	assert.Equal(t, []string{"layer_norm", "gemm"}, b.column("operations", "operation"))
	assert.Equal(t, "descending",
		eval[string](b, `document.querySelector("#operations th[aria-sort]").getAttribute("aria-sort")`))

	// The tooltip describes the element under the pointer, with units.
	said := lines(b.tip(b.middle("#operations circle", 0)))
	assert.Equal(t, []string{
		"gemm", "training", "GPU time 30 s", "13.3 GFLOP/s at 4,000 FLOPs per byte", "3.33 MB/s",
		"50 % of the roof", "bound by compute",
	}, said)
	const steps = `[data-key^='strip steps']`
	said = lines(b.tip(b.middle(steps, 0)))
	assert.Regexp(t, `^train \d+, mean of 2 ranks: 850 ms$`, said[0])
	assert.Contains(t, said, "longest 900 ms, rank 1")
	assert.Contains(t, said, "forward 300 ms")
	assert.Contains(t, said, "backward 400 ms")
	x, y = b.middle("#when svg.strip", 0)
	assert.Regexp(t,
		`GPU-0 · NVIDIA H100 80GB HBM3, \d\d:\d\d:\d\d\ncovered by spans (3\d|4\d|5\d)(\.\d)? %\nbusy, reported by the device, 60 %\npower 3\d\d W`, b.tip(x, y))

	// A click on a step shows its trace, as does a click on a request. The viewer of others is a
	// link.
	x, y = b.middle(steps, 0)
	b.do(chromedp.MouseEvent("mousePressed", x, y, chromedp.ButtonLeft, chromedp.ClickCount(1)),
		chromedp.MouseEvent("mouseReleased", x, y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	b.until(`document.querySelector("#trace a")?.href === "http://jaeger.test/trace/00000000000000000000000000000003"`)
	assert.Contains(t, b.text("#trace .name"), "train × 50 rank 0")
	b.run(`document.querySelector("#requests button.plain").click()`)
	b.until(`document.querySelector("#trace a")?.href === "http://jaeger.test/trace/00000000000000000000000000000007"`)
	assert.Equal(t, []string{"prefill", "decode", "queue"}, lines(b.text("#trace .name bdi")))
	assert.Contains(t, eval[string](b, `location.hash`), "trace=00000000000000000000000000000007", "it can be sent")
	b.hangsTogether()
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape)) // the tooltip first
	b.until(`document.getElementById("trace").hidden`)

	// New data appears automatically.
	m.Traces(spans(t, "training", "GPU-0", 0, span{
		"brand_new", "section",
		time.UnixMilli(eval[int64](b, "state.now") - 1000), time.Millisecond, 9, nil,
	}))
	b.until(`document.querySelector("#operations").textContent.includes("brand_new")`)
}

func TestATimeIsChosenByMouseAndByKeyboard(t *testing.T) {
	b := open(t, serve(t, busy(t)), 1300, 1000)
	b.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
	x, y := b.middle("#when svg.strip", 0)
	b.drag(x-200, x, y)
	b.until(
		`!document.getElementById("chosen").hidden && Number(document.querySelector("#operations tbody td:nth-child(4)").textContent) < 60`)
	assert.Regexp(t, `^Selected \d\d:\d\d:\d\d to \d\d:\d\d:\d\d \(1\d(\.\d+)? s\)\. Operation totals are rounded to 5 s\.reset$`,
		b.text("#chosen"))
	assert.False(t, eval[bool](b, `document.querySelector("#when .overlay .picked").hidden`), "it is drawn over all tracks")
	assert.Less(t, eval[int](b, `state.steps.length`), 80)
	b.until(`!pending.size`)
	assert.Contains(t, b.text("#none"), "No usage records in this time range", "both requests came later")
	b.press("chosen", "reset")
	b.until(
		`document.getElementById("chosen").hidden && document.querySelector("#operations tbody td:nth-child(4)").textContent === "100"`)

	// The same with the keyboard.
	b.run(`document.querySelector("#when svg.strip").focus()`)
	for range 3 {
		b.do(chromedp.KeyEvent(kb.ArrowLeft))
	}
	assert.Contains(t, eval[string](b, `document.getElementById("tip").textContent`), "GPU-0",
		"what is at the cursor is said")
	for range 4 {
		b.do(chromedp.KeyEvent(kb.ArrowLeft, chromedp.KeyModifiers(chromedp.ModifierShift)))
	}
	b.until(
		`!document.getElementById("chosen").hidden && Number(document.querySelector("#operations tbody td:nth-child(4)").textContent) < 60`)
	assert.Contains(t, b.text("#chosen"), "(4 s).")
	assert.True(t, eval[bool](b, `document.activeElement.matches("svg.strip")`), "the focus stays where it was")
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
	b.until(
		`document.getElementById("chosen").hidden && document.querySelector("#operations tbody td:nth-child(4)").textContent === "100"`)
}

func TestARedrawKeepsOtherLinesAndHiddenOnes(t *testing.T) {
	b := open(t, serve(t, busy(t)), 1300, 1000)
	b.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
	b.run(`document.querySelector("#when svg.strip").focus()`)
	for range 3 {
		b.do(chromedp.KeyEvent(kb.ArrowLeft))
	}
	said := b.text("#tip")
	require.Contains(t, said, "GPU-0")
	b.redraw()
	assert.Equal(t, said, b.text("#tip"), "the same tooltip after a redraw")
	assert.False(t, eval[bool](b, `document.getElementById("tip").hidden`))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.redraw()
	assert.True(t, eval[bool](b, `document.getElementById("tip").hidden`), "the redraw gives the focus back, not the tip")
	assert.True(t, eval[bool](b, `document.activeElement.matches("svg.strip")`))
}

func TestThePageIsWorkedByKeyboardOnly(t *testing.T) {
	b := open(t, serve(t, busy(t)), 1300, 1000)
	b.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
	reached := map[string]bool{}
	for range 400 {
		b.do(chromedp.KeyEvent(kb.Tab))
		at := eval[string](b, `document.activeElement.dataset.key || ""`)
		reached[at] = true
		if at == "operations count" {
			b.do(chromedp.KeyEvent(kb.Enter))
			assert.Equal(t, "count", eval[string](b, `document.activeElement.textContent`), "the focus outlives the redraw")
			assert.Equal(t, "descending", eval[string](b, `document.activeElement.closest("th").getAttribute("aria-sort")`))
		}
		if at == "strip GPU-0" { // one stop for all tracks
			b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowLeft))
			reached["a step"] = strings.HasPrefix(eval[string](b, `document.activeElement.dataset.key`), "strip steps")
			assert.Contains(t, eval[string](b, `document.getElementById("tip").textContent`), "train",
				"what has the focus is said")
			b.do(chromedp.KeyEvent(kb.Enter))
			b.until(`!document.getElementById("trace").hidden`)
			b.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
		}
		if strings.HasPrefix(at, "requests J") {
			break
		}
	}
	for _, want := range []string{
		"control 5 min", "control pause", "strip GPU-0", "point training\ngemm\nsection",
		"operations count", "a step", "requests J",
	} {
		assert.True(t, reached[want], "%s is not reached by Tab: %v", want, reached)
	}
	b.run(`document.querySelector("[data-key='control 5 min']").focus()`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(
		`document.querySelector("[data-key='control 5 min']").getAttribute("aria-pressed") === "true" && document.activeElement.textContent === "5 min"`)
}

func TestEmptyViewsNameTheMissingSource(t *testing.T) {
	b := open(t, serve(t, page.New()), 1000, 900)
	for name, want := range map[string]string{
		"devices": "Send spans of GPU work with hw.id", "operations": "Point an OTLP exporter at this Collector",
		"requests": "Batches that link to their requests", "findings": "Nothing stands out",
	} {
		assert.Contains(t, b.text("[data-key='none "+name+"']"), want)
	}
	assert.Contains(t, b.text("#health"), "none yet")
	assert.Equal(t, "No data in this range", b.text("#none h2"))
	b.hangsTogether()
}

// hostileModel returns a model with names that contain markup and scripts.
func hostileModel(t testing.TB) *page.Model {
	m, now := stopped()
	for i, name := range hostile {
		at := now.Add(-time.Duration(i+2) * time.Second)
		m.Traces(spans(t, name, name, i,
			span{name, "section", at, time.Millisecond, byte(i), map[string]any{
				"gpu.flop.count":     1e9,
				"gpu.flop.precision": name, "gpu.io.size": 1000, "gpu.roofline.bound": name, "gpu.operation.category": name,
			}},
			span{name, "step", at, 900 * time.Millisecond, byte(i), map[string]any{
				"gpu.step.index":                  1,
				"gpu.step.phase.duration." + name: 0.5,
			}},
			span{name, "share", at, time.Millisecond, byte(100 + i), map[string]any{
				"gpu.operation.item.type": name,
				"gpu.operation.items":     4, "gpu.energy": 1.0, "gpu.request.duration": 0.1,
			}}))
		m.Metrics(gauge("hw.power", name, 100, at))
	}
	huge := map[string]any{
		"gpu.flop.count": 1e308, "gpu.io.size": 1e308, "gpu.energy": 1e308, "gpu.operation.items": 1e308,
		"gpu.request.duration": 1e308, "gpu.step.duration": 1e308, "gpu.step.phase.duration.forward": 1e308,
		"gpu.roofline.utilization": 1e-300, "gpu.roofline.bound": "compute", "gpu.flop.precision": "bf16",
	}
	for i, kind := range []string{"section", "share", "share", "step", "step"} {
		m.Traces(spans(t, "huge", "huge", i, span{"huge", kind, now.Add(-time.Second), time.Nanosecond, 200, huge}))
		m.Metrics(gauge([]string{"hw.power", "hw.gpu.memory.usage"}[i%2], "huge", 1e308, now.Add(-time.Second)))
	}
	return m
}

func TestHostileNamesAreText(t *testing.T) {
	b := open(t, serve(t, hostileModel(t)), 1300, 1000)
	b.until(`document.querySelectorAll("#operations tbody tr").length === ` + fmt.Sprint(len(hostile)+1))
	names := b.column("operations", "operation")
	shown := strings.NewReplacer("\u202e", "\ufffd", "\u2028", "\ufffd", "\x1b", "\ufffd")
	for _, name := range hostile {
		assert.True(t, slices.ContainsFunc(names, func(s string) bool {
			return s == shown.Replace(name) || len(s) > 200 && strings.HasPrefix(name, strings.TrimSuffix(s, "…"))
		}),
			"%q in %q", name, names)
	}
	assert.NotRegexp(t, "[\u202a-\u202e\u2066-\u2069\\x1b]", b.text("main"), "no name turns the text around it")
	assert.Zero(t, eval[int](b, `document.querySelectorAll("img, body script, svg svg, [onerror], [onload]").length`))
	assert.Equal(t, "isolate", eval[string](b,
		`getComputedStyle(document.querySelector("#operations td bdi")).unicodeBidi`),
		"a name that is written from right to left turns nothing else")
	b.tip(b.middle("[data-key^='strip steps']", 0))
	b.fits()
}

func TestThePageFitsANarrowWindowAndTheDark(t *testing.T) {
	address := serve(t, busy(t))
	for _, scheme := range []string{"light", "dark"} {
		b := open(t, address, 400, 800, prefers(scheme))
		b.until(`document.querySelectorAll("#operations tbody tr").length === 2`)
		b.fits()
		b.readable()
		assert.Equal(t, scheme == "dark",
			eval[bool](b, `Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]) < 128`))
		for _, selector := range []string{
			"h2", "td", "#summary", ".hint", ".legend", "button[aria-pressed=true]", ".tile .says",
			"button.plain", "th button",
		} {
			assert.GreaterOrEqual(t, b.contrast(selector), 4.5, "%s, %s", scheme, selector)
		}
		for _, section := range []string{"when", "operations"} {
			assert.Positive(t, eval[float64](b, `document.querySelector("#`+section+` svg").getBoundingClientRect().height`))
		}
	}
}

// fleet returns a model with a minute of a training job on 64 devices that are sampled every ten
// seconds. The last four are late.
func fleet(t testing.TB) *page.Model {
	m, now := stopped()
	for rank := range 64 {
		device := fmt.Sprintf("GPU-%08x-1c2d-4e5f-8a9b-%012x", rank*7919, rank)
		for i := range 60 {
			at := now.Add(-time.Duration(i+2) * time.Second)
			m.Traces(spans(t, "pretrain", device, rank,
				span{"forward", "section", at, 250 * time.Millisecond, 1, nil},
				span{
					"train", "step", at, time.Duration(800+rank%7+100*(rank/60)) * time.Millisecond, 2,
					map[string]any{
						"gpu.step.index": 1000 - i, "gpu.step.phase.duration.forward": 0.25, "gpu.step.phase.duration.backward": 0.4,
						"gpu.step.phase.duration.loss": 0.05, "gpu.step.phase.duration.log": 0.05,
					},
				}))
		}
		for i := range 6 {
			at := now.Add(-time.Duration(10*i+1) * time.Second)
			m.Metrics(gauge("hw.power", device, 550, at))
			m.Metrics(gauge("hw.gpu.memory.usage", device, float64(60+rank%16)*(1<<30), at))
		}
	}
	return m
}

func TestTheDrawingsOf64DevicesAreReadable(t *testing.T) {
	address := serve(t, fleet(t))
	for _, width := range []int64{400, 1300} {
		b := open(t, address, width, 900)
		b.until(`document.querySelectorAll("#when path.late1").length > 0 && !pending.size`)
		b.readable()
		b.fits()
		phases := lines(eval[string](b, `[...document.querySelectorAll("#when [data-phase]")].map((n) => n.dataset.phase).join("\n")`))
		assert.Equal(t, []string{"forward", "backward", "loss", "log", "other"}, sorted(phases), "what a chart shows")
		assert.Equal(t, 64, eval[int](b,
			`[...document.querySelectorAll("#when path.level")].filter((n) => n.getTotalLength() > 100).length`),
			"a sample is of the time since the one before")
		assert.NotContains(t, b.text("#when .legend"), "memory of", "seven colours tell no 64 lines apart")
		assert.Contains(t, b.text("#summary"), "3,776 steps", "including steps that are not in the page")
		assert.Regexp(t, `^train \d+ and \d+ more, mean of 64 ranks: `, lines(b.tip(b.middle("[data-key^='strip steps']", 0)))[0],
			"all steps are shown, as means")
	}
}

// sorted returns the known phases of a step in execution order, because a step may state them in
// any order.
func sorted(names []string) []string {
	order := []string{"forward", "backward", "loss", "log", "other"}
	slices.SortStableFunc(names, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) })
	return names
}

// TestManyDevicesAndOperations feeds 64 devices and 10,000 operations while the page is open: it
// keeps drawing, with a bounded number of nodes.
func TestManyDevicesAndOperations(t *testing.T) {
	m, now := stopped()
	b := open(t, serve(t, m), 1300, 1000)
	var batches []ptrace.Traces
	for d := range 64 {
		list := make([]span, 1600)
		for i := range list {
			list[i] = span{
				fmt.Sprint("operation ", (d*157+i)%10_000), "section",
				now.Add(-time.Duration(i*9) * time.Millisecond), time.Millisecond, byte(i),
				map[string]any{
					"gpu.flop.count": float64(1+i) * 1e7, "gpu.flop.precision": "bf16", "gpu.io.size": 1000 * (i + 1),
					"gpu.roofline.bound": "memory",
				},
			}
		}
		batches = append(batches, spans(t, "svc", fmt.Sprintf("GPU-%02d", d), d, list...))
	}
	var sent atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second / 64)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				m.Traces(batches[i%64])
				sent.Add(1600)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	b.until(`document.querySelectorAll("#when svg.strip").length === 64 && state.moreOperations > 9000`)
	before, began := eval[int](b, `Number(document.documentElement.dataset.drawn)`), time.Now()
	b.until(fmt.Sprintf(`Number(document.documentElement.dataset.drawn) >= %d`, before+4))
	nodes := eval[int](b, `document.querySelectorAll("*").length`)
	took := eval[float64](b, `(() => { const t = performance.now(); draw("when"); return performance.now() - t; })()`)
	size := eval[int](b, `JSON.stringify(state).length`)
	t.Logf("4 more drawings in %s while %d spans came; one of the devices takes %.0f ms, and the page has %d nodes; the state is %d kB",
		time.Since(began).Round(time.Millisecond), sent.Load(), took, nodes, size/1000)
	assert.Less(t, nodes, 25_000)
	assert.Less(t, size, 1_500_000)
	b.press("operations", "operation")
	assert.True(t, slices.IsSorted(b.column("operations", "operation")[:3]), "it answers meanwhile")
}

// The headline compares a selection with the time before, and findings are marked when they
// occurred.
func TestTheTimeBeforeAndTheTimesOfFindingsAreShown(t *testing.T) {
	m := busy(t)
	now := time.UnixMilli(m.State(page.Query{}).Now)
	m.Traces(spans(t, "chat", "GPU-1", -1, span{
		"prefill.long", "section", now.Add(-7 * time.Second), 2 * time.Second, 9,
		map[string]any{"gpu.throttle.reasons": []any{"sw_power_cap"}},
	}))
	b := open(t, serve(t, m), 1300, 1000)
	b.run(fmt.Sprintf(`choose(%d, %d)`, now.Add(-22*time.Second).UnixMilli(), now.Add(-2*time.Second).UnixMilli()))
	b.until(`state.before.seconds === 20 && !pending.size`)
	// 350 to 370 W after 370 to 390 W: each sample covers the second before it.
	assert.Regexp(t, `Power72[01] Wmean of 2 devices▼ 5.\d+ % less than the 20 s before`, b.text("#headline"))
	assert.Contains(t, b.text("#headline"), "Steps per second", "of rank 0, every second")
	assert.Contains(t, b.text("#headline"), "≈ unchanged")

	assert.Equal(t, "throttle", b.text("#when .track:has([data-key='strip findings']) .name"))
	mark := eval[[]float64](b, `(() => { const r = document.querySelector("rect.finding.hot"); return [axis.at(Number(r.getAttribute("x"))), axis.at(Number(r.getAttribute("x")) + Number(r.getAttribute("width")))]; })()`)
	from := now.Add(-5*time.Second).UnixMilli() / 5000 * 5000
	assert.InDelta(t, from, mark[0], 100)
	b.press("standsOut", "Show time")
	b.until(fmt.Sprintf(`live.pick.from === %d && !pending.size`, from-500))
}
