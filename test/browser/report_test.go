// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

// write writes a report and returns its address.
func write(t *testing.T, s *page.State) string {
	t.Helper()
	path, err := page.WriteReport(t.TempDir(), "report.html", s)
	require.NoError(t, err)
	return "file://" + path
}

// read adds a recorded trace to a book.
func read(t *testing.T, b *page.Book, path string) []facts.Report {
	t.Helper()
	st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{
		Paths: true, Observe: func(in *link.Input) link.Observer { return b.Observe(path, in) },
	}, func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	b.Profile(path, st.Devices, nil)
	b.Host(path, st.Host)
	b.Paths(path, st.Paths)
	return st.Devices
}

// kernel is an activity of a profile.
func kernel(device, stream, start, length int64) event.Event {
	return event.Event{Kind: event.KindKernel, Device: device, Stream: stream, Start: start, Duration: length}
}

// observe adds a profile of kernels to a book.
func observe(t *testing.T, b *page.Book, file string, kernels map[string][]event.Event) {
	t.Helper()
	p := profiletrace.New(profiletrace.Options{
		Observe: func(in *link.Input) link.Observer { return b.Observe(file, in) },
	}, profiletrace.Source{Root: file, Service: file})
	defer p.Close()
	p.Meta.Base = time.Now().Add(-time.Hour).UnixNano()
	for name, list := range kernels {
		for _, e := range list {
			e.Name = p.Names.ID(name)
			require.NoError(t, p.Add(&e))
		}
	}
	_, err := p.Emit(t.Context(), func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
}

// drawn counts the pixels of the timeline with a color of work.
const drawn = `(() => {
	const c = document.querySelector("#timeline canvas"), d = c.getContext("2d").getImageData(160, 20, c.width - 160, c.height - 20).data;
	let n = 0;
	for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 250 && Math.abs(d[i] - d[i + 2]) > 40) n++;
	return n;
})()`

func TestTheReportOfARealTrace(t *testing.T) {
	path := recorded.Path(t, "kineto", "hta/nccl_parser_config/nccl_data.json.gz")
	book := page.NewBook()
	device := read(t, book, path)[0]
	b := open(t, write(t, book.State(nil)), 1400, 1000)
	b.hangsTogether()
	b.readable()
	assert.Equal(t, "nccl_data.json.gz", b.text("#summary"))
	headings := b.text("section:not([hidden]) h2")
	for _, want := range []string{
		"What would make it faster?", "Where did the time go?", "How do the steps differ?", "What does the length of a step depend on?", "What ran when?",
		"What takes the time?",
		"Is communication hidden behind computation?", "How fast are collectives?", "Which copies delay the device?", "What was read?",
	} {
		assert.Contains(t, headings, want)
	}
	assert.NotContains(t, headings, "Which rank", "a single rank cannot be a straggler")
	assert.NotContains(t, headings, "requests")

	// The numbers equal the analysis.
	assert.Contains(t, b.text("#findings h3"), "launch bound")
	assert.NotEmpty(t, b.text("#findings details"), "evidence is folded")
	assert.Contains(t, b.text("#findings .answer"), "can be saved: the host launches kernels more slowly than the device runs them", "one sentence first")
	assert.Equal(t, []string{"computing", "exposed communication", "exposed copies"}, b.column("where", "part")[:3])
	assert.Equal(t, []string{"116 ms", "39.6 ms", "2.28 ms"}, b.column("where", "time")[:3])
	assert.Equal(t, "ncclKernel_AllReduce_RING_LL_Sum_float", b.column("lists", "kernel")[0])
	assert.Contains(t, b.column("lists", "time")[0], "46.8 ms")
	assert.Equal(t, "15", b.column("lists", "count")[0])
	assert.Equal(t, []string{"1.97 %", "94 %", "46.2 %"}, b.column("lists", "occupancy")[:3])
	assert.Equal(t, []string{"0.0741", "16.1", "0.912"}, b.column("lists", "waves")[:3])
	assert.Equal(t, []string{"96", "22", "40"}, b.column("lists", "regs")[:3])
	assert.Equal(t, []string{"8.2 MB", "31.5 MB", "26.3 MB"}, b.column("bandwidth", "size")[:3])
	assert.Equal(t, []string{"3.25 GB/s", "13 GB/s", "11.1 GB/s"}, b.column("bandwidth", "bus")[:3])
	assert.Equal(t, "1.08 %", b.column("bandwidth", "of link")[0])
	assert.Equal(t, "default_pg [0, 1]", b.column("bandwidth", "group")[0])
	assert.Contains(t, b.column("timeline", "stream"), "rank 0, thread 2910249")
	assert.Equal(t, []string{"0 of 2"}, b.column("sources", "rank"))
	assert.Contains(t, b.text("#communication figcaption"), "46.9 ms of communication, 15.6 % of it hidden")
	assert.Equal(t, "307 MB", b.column("copies", "bytes")[0])
	said := lines(b.tip(b.middle("#where rect", 0)))
	assert.Equal(t, []string{"computing", "116 ms", "17.5 %"}, said)
	said = lines(b.tip(b.middle("#profileSteps .column", 1)))
	assert.Equal(t, "ProfilerStep#5: 220 ms", said[0])
	assert.Contains(t, strings.Join(said, "\n"), "computing 3")

	assert.Contains(t, b.text("#profilePath figcaption"), "critical path, mean of 3 steps: 222 ms")
	assert.Equal(t, "host", b.column("profilePath", "kind")[0], "of a job that launches too slowly")
	assert.Equal(t, "thread 2910249", b.column("profilePath", "thread")[0])
	said = lines(b.tip(b.middle("#profilePath figure:nth-of-type(2) rect", 1)))
	assert.Contains(t, said[1], "host, thread 29")

	// Order, search, tabs.
	b.press("lists", "count")
	assert.Equal(t, "nchwToNhwcKernel", b.column("lists", "kernel")[1])
	b.run(`const n = document.querySelector("#lists input"); n.value = "cutlass"; n.dispatchEvent(new Event("input", {bubbles: true}))`)
	for _, name := range b.column("lists", "kernel") {
		assert.Contains(t, name, "cutlass")
	}
	b.press("lists", "operators")
	assert.Equal(t, "aten::convolution_backward", b.column("lists", "operator")[0])

	// The timeline: tooltip, zoom by mouse, keyboard and step, and back.
	assert.Greater(t, eval[int](b, drawn), 2000)
	x, y := b.middle("#timeline canvas", 0)
	assert.Contains(t, b.tip(x, y+20), "rank 0, GPU 0, stream ", "below the threads of the host")
	assert.Contains(t, b.tip(x, y-40), "rank 0, thread 2910249")
	b.drag(x-300, x-100, y)
	b.until(`profile.zoom !== null && document.querySelector("#timeline button")?.textContent === "show all"`)
	zoomed := eval[float64](b, `profile.zoom.to - profile.zoom.from`)
	assert.InDelta(t, device.Window.Seconds()*1e3*200/1200, zoomed, 30)
	b.run(`document.querySelector("#timeline canvas").focus()`)
	b.do(chromedp.KeyEvent("+"), chromedp.KeyEvent(kb.ArrowRight))
	b.until(fmt.Sprintf(`profile.zoom.to - profile.zoom.from < %f`, zoomed*0.8))
	assert.Contains(t, eval[string](b, `document.getElementById("tip").textContent`), "thread")
	b.do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(kb.Escape))
	b.until(`profile.zoom === null`)
	b.run(`document.querySelectorAll("#profileSteps .column")[1].dispatchEvent(new MouseEvent("click", {bubbles: true}))`)
	b.until(`profile.zoom !== null`)
	assert.InDelta(t, 219.7, eval[float64](b, `profile.zoom.to - profile.zoom.from`), 1)
}

func TestAReportWithoutADeviceStatesWhereTheHostWas(t *testing.T) {
	book := page.NewBook()
	read(t, book, recorded.Path(t, "kineto", "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"))
	b := open(t, write(t, book.State(nil)), 1200, 900)
	b.hangsTogether()
	assert.Contains(t, b.text("#findings"), "The profile has no activity of a device")
	assert.Contains(t, b.text("#findings"), "## backward ## (1.07 s)")
	assert.Equal(t, 5, eval[int](b, `document.querySelectorAll("#hostWork .column").length`), "its steps")
	assert.Equal(t, "gloo:all_reduce", b.column("hostWork", "operator")[0])
	assert.Equal(t, "10", b.column("hostWork", "count")[0])
	assert.Contains(t, b.text("#findings"), "ProfilerActivity.CUDA")
	assert.NotContains(t, b.text("#findings"), "threshold")
}

// The late rank precedes the waits of the other ranks.
func TestTheLateRankIsTheFirstFinding(t *testing.T) {
	book := page.NewBook()
	read(t, book, recorded.Path(t, "kineto", "param/dlrm_8ranks/worker1.pt.trace.json.gz"))
	b := open(t, write(t, book.State([]jobs.Job{{
		World: 8, Says: "rank 7 delays the others", Late: []jobs.LateRank{{Rank: 7, Each: 5 * time.Millisecond}},
		Ranks: []jobs.Rank{{Rank: 1}, {Rank: 7}},
	}})), 1200, 900)
	b.hangsTogether()
	assert.Equal(t, "profileRanks", eval[string](b, `document.querySelector("main section:not([hidden])").id`))
	assert.Equal(t, "Rank 7 delays the others.", b.text("#profileRanks .answer"))
	assert.Contains(t, b.text("#profileRanks"), "Each of the other ranks waits 5 ms for rank 7.")
}

// Which rank is late is first, and what is known about single ranks is closed.
func TestTheReportOf8RanksIsShort(t *testing.T) {
	book := page.NewBook()
	late := jobs.Job{World: 8, Says: "rank 7 delays the others", Late: []jobs.LateRank{{Rank: 7, Each: 5 * time.Millisecond}}}
	for i := range 8 {
		read(t, book, recorded.Path(t, "kineto", fmt.Sprintf("param/dlrm_8ranks/worker%d.pt.trace.json.gz", i)))
		late.Ranks = append(late.Ranks, jobs.Rank{Rank: int64(i)})
	}
	b := open(t, write(t, book.State([]jobs.Job{late})), 1400, 1000)
	b.hangsTogether()
	assert.Equal(t, "profileRanks", eval[string](b, `document.querySelector("main section:not([hidden])").id`))
	assert.Equal(t, "Rank 7 delays the others.", b.text("#profileRanks .answer"))
	assert.Less(t, eval[float64](b, `document.documentElement.scrollHeight`), 4000.0)
	b.run(`document.querySelector("#profilePath summary").click()`)
	b.until(`document.querySelector("#profilePath svg").getBoundingClientRect().width > 500`)
}

func TestAllocatedMemoryOverTime(t *testing.T) {
	book := page.NewBook()
	path := recorded.Path(t, "kineto", "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
	read(t, book, path)
	b := open(t, write(t, book.State(nil)), 1400, 1000)
	said := b.text("#profileMemory .hint")
	assert.Contains(t, said, "At most 1.95 GiB", "2,088,508,416 bytes are the largest Total Allocated of the file")
	x, y := b.middle("#profileMemory svg[role=img]", 0)
	assert.Regexp(t, `^\+\d.* m?s\nGPU 0: \d.* [MG]iB$`, b.tip(x, y))
	b.hangsTogether()
}

func TestReportsFitANarrowWindowAndTheDark(t *testing.T) {
	book := page.NewBook()
	read(t, book, recorded.Path(t, "kineto", "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"))
	address := write(t, book.State(nil))
	for _, scheme := range []string{"light", "dark"} {
		b := open(t, address, 400, 800, prefers(scheme))
		b.fits()
		b.readable()
		for _, selector := range []string{"h2", "td", "#summary", ".dim", ".hint", ".legend", "button[aria-pressed=true]"} {
			assert.GreaterOrEqual(t, b.contrast(selector), 4.5, "%s, %s", scheme, selector)
		}
		assert.Greater(t, eval[int](b, drawn), 500)
		assert.Positive(t, eval[int](b, `document.querySelectorAll("#profileRoofline circle").length`))
		assert.Positive(t, eval[int](b, `document.querySelectorAll("#profileRoofline .roof").length`),
			"the table of peaks has the H100")
	}
}

func TestHostileNamesInAReport(t *testing.T) {
	book := page.NewBook()
	start := time.Now()
	var kernels []facts.Kernel
	var operators []facts.Operator
	var found []finding.Finding
	for _, name := range hostile {
		kernels = append(kernels, facts.Kernel{Name: name, Count: 1, Time: time.Millisecond})
		operators = append(operators, facts.Operator{
			Name: name, Shapes: name, Kernel: name, Time: time.Millisecond, Kernels: 1,
			Rate: facts.Rate{FLOPs: 1e6, Bytes: 1e5, FLOPRate: 1e9, ByteRate: 1e8, Precision: name, Bound: name},
		})
		found = append(found, finding.Finding{
			Kind: name, Subject: name, Chain: []string{name, name}, Evidence: name,
			Remedy: name,
		})
		observe(t, book, name, map[string][]event.Event{name: {kernel(0, 1, 0, 1e6)}})
	}
	for i, name := range hostile {
		book.Profile(name, []facts.Report{{
			Model: name, Window: time.Second, Kernels: 8, ByKernel: kernels, Operators: operators, Findings: found,
			ByStep:      []facts.Step{{Name: name, Start: start.UnixNano(), Time: time.Millisecond}},
			Copies:      []facts.Copy{{Direction: name, Memory: name, Count: 1, Bytes: int64(i)}},
			Collectives: []facts.Collective{{Name: name, Count: 1, Time: 1}},
			Parts:       facts.Parts{CommExposed: time.Millisecond},
		}}, []string{name})
	}
	s := book.State([]jobs.Job{{
		ID: hostile[1], Says: hostile[0], Ranks: []jobs.Rank{{Rank: 0, File: hostile[1]}, {Rank: 1, File: hostile[2]}},
		Late: []jobs.LateRank{{
			Rank: 1, In: hostile[0], At: []jobs.LateAt{{Collective: hostile[1], Group: hostile[2], Count: 1}},
		}},
	}})
	s.Comparison = &page.Comparison{Comparison: facts.Comparison{
		Parts:   []facts.Change{{Name: hostile[1], Before: 1}},
		Kernels: []facts.Change{{Name: hostile[0], After: 1}},
	}, Names: [2]string{hostile[0], hostile[2]}}
	b := open(t, write(t, s), 1200, 900)
	assert.Contains(t, b.text("#findings"), hostile[1])
	assert.Contains(t, b.text("#profileRanks"), hostile[0])
	assert.Zero(t, eval[int](b, `document.querySelectorAll("img, svg svg, [onerror], [onload]").length`))
	assert.Equal(t, 2, eval[int](b, `document.scripts.length`), "the data and the program")
	b.fits()
}

func TestTheComparisonStatesTheLargestChangeFirst(t *testing.T) {
	names := [2]string{
		recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"),
		recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz"),
	}
	var reports [2][]facts.Report
	for i, name := range names {
		reports[i] = read(t, page.NewBook(), name)
	}
	b := open(t, write(t, page.Compared(names, reports, [2]*stackprofile.Graph{})), 1200, 900)
	b.hangsTogether()
	assert.Contains(t, b.text("#comparison .headline"), "A step is 36.5 ms (20.6 %) shorter")
	bars := lines(b.text("#comparison svg text"))
	assert.Equal(t, []string{"idle: loader", "−57.6 ms"}, bars[:2])
	assert.Contains(t, b.tip(b.middle("#comparison svg rect", 0)), "58.7 ms before, 1.18 ms after")
	b.readable()
	assert.Contains(t, b.column("comparison", "before → after"), "136 → 133 kernels")
	assert.Contains(t, b.column("comparison", "more or slower work"), "more kernels, each shorter")
	for _, bar := range []string{"idle: loader", "idle: launch-bound"} {
		assert.Contains(t, b.text("#where .legend"), bar, "parts have the names of the comparison")
	}
}

// TestAReportOf100000Points draws 100,000 activities on 64 streams, and stays small.
func TestAReportOf100000Points(t *testing.T) {
	book := page.NewBook()
	kernels := map[string][]event.Event{}
	for d := range int64(64) {
		for i := range int64(1600) {
			name := fmt.Sprint("kernel ", i%700)
			kernels[name] = append(kernels[name], kernel(d/8, d%8, (i*997+d)*1000, 900_000))
		}
	}
	observe(t, book, "many", kernels)
	book.Profile("many", nil, nil)
	address := write(t, book.State(nil))
	info, err := os.Stat(filepath.FromSlash(strings.TrimPrefix(address, "file://")))
	require.NoError(t, err)
	assert.Less(t, info.Size(), int64(3_000_000))
	b := open(t, address, 1300, 1000)
	t.Logf("%d kB; the timeline drawn again in %.0f ms", info.Size()/1000, eval[float64](b,
		`(() => { const t = performance.now(); draw("timeline"); return performance.now() - t; })()`))
	assert.Greater(t, eval[int](b, drawn), 100_000)
	assert.Less(t, eval[int](b, `document.querySelectorAll("*").length`), 5000)
}

// rankOf64 returns the PyTorch profile of a rank: 12 steps of matrix products and an all-reduce, at
// which the others wait for rank 49 in three of four steps.
func rankOf64(rank int) string {
	var events []string
	add := func(category, name string, process, thread, start, length int, args string) {
		events = append(events, fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%d,"dur":%d,"args":{%s}}`,
			category, name, process, thread, start, length, args))
	}
	correlation, now := 0, 1_000_000
	launch := func(operator, kernel string, stream, start, length int, args string) {
		correlation++
		add("cpu_op", operator, 4000, 4001, now, 20, fmt.Sprintf(`"External id":%d`, correlation))
		add("cuda_runtime", "cudaLaunchKernel", 4000, 4001, now+10, 5, fmt.Sprintf(`"correlation":%d`, correlation))
		add("kernel", kernel, rank%8, stream, start, length, fmt.Sprintf(
			`"device":%d,"stream":%d,"correlation":%d,"External id":%d,"grid":[864,1,1],"block":[256,1,1]%s`,
			rank%8, stream, correlation, correlation, args))
		now += 25
	}
	for step := range 12 {
		begin, products, most := now, 40, 40
		if step%4 != 3 { // with some steps on time, the duration of the all-reduce itself is known
			most = 50
		}
		if rank == 49 {
			products = most
		}
		for i := range products {
			launch("aten::mm", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", 7, begin+50+100*i, 99, "")
		}
		arrival, end := begin+50+100*products, begin+200+100*most
		launch("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, arrival, end-arrival, fmt.Sprintf(
			`,"Collective name":"allreduce","In msg nelems":4000000,"Out msg nelems":4000000,"Group size":64,`+
				`"dtype":"BFloat16","Process Group Name":"0","Process Group Description":"default_pg","Seq":%d`, step+1))
		now = end + 10
		add("user_annotation", fmt.Sprint("ProfilerStep#", step), 4000, 4001, begin, now-begin, "")
		now += 10
	}
	return fmt.Sprintf(`{"schemaVersion":1,"deviceProperties":[{"id":%d,"name":"NVIDIA A100-SXM4-80GB","numSms":108}],`+
		`"distributedInfo":{"backend":"nccl","rank":%d,"world_size":64},"baseTimeNanoseconds":1727000000000000000,`+
		`"traceEvents":[%s]}`, rank%8, rank, strings.Join(events, ",\n"))
}

// Of 64 ranks every view shows all, small and on one scale, and one of them large.
func TestTheReportOf64Ranks(t *testing.T) {
	dir, book := t.TempDir(), page.NewBook()
	for rank := range 64 {
		path := filepath.Join(dir, fmt.Sprintf("rank%02d.json", rank))
		require.NoError(t, os.WriteFile(path, []byte(rankOf64(rank)), 0o600))
		read(t, book, path)
	}
	late := jobs.Job{World: 64, Says: "rank 49 delays the others", Late: []jobs.LateRank{{Rank: 49, Each: 5 * time.Millisecond}}}
	for rank := range int64(64) {
		late.Ranks = append(late.Ranks, jobs.Rank{Rank: rank})
	}
	b := open(t, write(t, book.State([]jobs.Job{late})), 1400, 1000)
	b.hangsTogether()
	b.readable()
	b.fits()
	assert.NotEmpty(t, b.text("#profileRanks .answer"), "the job's sentence is first")
	assert.Contains(t, b.text("#findings"), "late rank63 of 64 devices")
	assert.LessOrEqual(t, eval[int](b, `document.querySelectorAll("#findings li.card").length`), 6)
	for _, section := range []string{"where", "communication"} {
		assert.Contains(t, b.text("#"+section+" svg text"), "rank 63", section)
	}
	assert.InDelta(t, eval[float64](b, `document.querySelector("#where svg").getBoundingClientRect().width`),
		eval[float64](b, `document.querySelector("#communication svg").getBoundingClientRect().width`), 20, "no copies beside it")
	assert.Equal(t, 64, eval[int](b, `document.querySelectorAll("#profileSteps g.small").length`))
	assert.Equal(t, "rank 49, GPU 1", b.text("#profileSteps h3"), "the late rank is large")
	b.run(`document.querySelectorAll("#profileSteps g.small")[3].dispatchEvent(new MouseEvent("click", {bubbles: true}))`)
	b.until(`document.querySelector("#profileSteps h3").textContent === "rank 3, GPU 3"`)
	assert.Contains(t, b.column("lists", "device")[0], "64, longest on rank ")
	assert.Less(t, eval[float64](b, `document.querySelector("#timeline canvas").clientHeight`), 1000.0, "a row for each rank")
	assert.Less(t, eval[float64](b, `document.documentElement.scrollHeight`), 9000.0, "with critical paths")
	b.press("timeline", "one row for each stream")
	b.until(`document.querySelector("#timeline .hint:last-of-type") !== null`)
	assert.Contains(t, b.text("#timeline"), "more rows in the table")
}

// Layers that differ in numbers are one row of the tree, which opens; an inner row closes with its
// outer one.
func TestTheTreeOfModules(t *testing.T) {
	book := page.NewBook()
	read(t, book, recorded.Path(t, "kineto", "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"))
	b := open(t, write(t, book.State(nil)), 1300, 1000)
	b.hangsTogether()
	names := b.column("profileModules", "module or annotation")
	assert.Contains(t, names[0], "▾ Qwen2Model")
	assert.Contains(t, names[1], "▾ Qwen2DecoderLayer × 24")
	assert.Contains(t, names[len(names)-1], "(outside of modules and annotations)")
	assert.Contains(t, b.column("profileModules", "GPU time")[0], "31.9 ms")
	b.press("profileModules", "× 24")
	b.until(`document.querySelectorAll("#profileModules tbody tr").length === ` + fmt.Sprint(len(names)+24))
	assert.Contains(t, b.column("profileModules", "module or annotation")[2], "Qwen2DecoderLayer_0")
	b.press("profileModules", "hide each")
	b.press("profileModules", "▾ Qwen2Model")
	b.until(`document.querySelectorAll("#profileModules tbody tr").length === 2`)
	b.readable()
}
