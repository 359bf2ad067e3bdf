// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// Of each step of 100 ms the device computes for 70 ms, waits for data for 20 ms and copies from
// pageable memory for 10 ms. Values are ms; the host launches 10 µs ahead.
const (
	steps              = 40
	stepTime, loadTime = 100, 20
	copyTime           = 10
)

// recordedEvent is an event of the job: host is a call or a range of the host.
type recordedEvent struct {
	kind, name  string
	start, end  int64 // µs
	correlation int
}

func stepsThatWaitAndCopy() (list []recordedEvent) {
	id := 0
	work := func(kind, name, call string, start, end, returns int64) {
		id++
		list = append(list, recordedEvent{"call", call, start - 10, returns, id}, recordedEvent{kind, name, start, end, id})
	}
	for i := range int64(steps) {
		at := 1000 + i*1000*stepTime
		list = append(list, recordedEvent{"range", fmt.Sprint("ProfilerStep#", i), at - 20, at + 1000*stepTime - 30, 0})
		work("kernel", "gemm", "cudaLaunchKernel", at, at+40_000, at-5)
		list = append(list,
			recordedEvent{"call", "cudaStreamSynchronize", at, at + 40_000, 0},
			recordedEvent{
				"range", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 40_000, at + 1000*(40+loadTime) - 15, 0,
			})
		work("kernel", "gemm", "cudaLaunchKernel", at+60_000, at+90_000, at+59_995)
		work("memcpy", "Memcpy HtoD (Pageable -> Device)", "cudaMemcpyAsync", at+90_000, at+100_000, at+99_950)
	}
	return list
}

// asPyTorch writes a trace of PyTorch's profiler; more are further members of the file's object.
func asPyTorch(list []recordedEvent, more string) string {
	var b strings.Builder
	b.WriteString(`{"schemaVersion":1,` + more +
		`"baseTimeNanoseconds":1700000000000000000,"deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3"}],"traceEvents":[`)
	for i, e := range list {
		category := map[string]string{"call": "cuda_runtime", "range": "user_annotation", "kernel": "kernel", "memcpy": "gpu_memcpy"}
		pid, tid := 1, 1
		args := fmt.Sprintf(`"correlation":%d`, e.correlation)
		if e.kind == "kernel" || e.kind == "memcpy" {
			pid, tid = 0, 7
			args += `,"device":0,"stream":7`
			if e.kind == "memcpy" {
				args += `,"bytes":80000000`
			}
			if strings.HasPrefix(e.name, "nccl") {
				args += `,"Collective name":"allreduce","Process Group Name":"0","In msg nelems":1000000,"dtype":"Float","Group size":4`
			}
		}
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, `{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%d,"dur":%d,"args":{%s}}`, category[e.kind], e.name,
			pid, tid, e.start, e.end-e.start, args)
	}
	return b.String() + "]}"
}

// asNsight writes the tables that the documentation of Nsight Systems' exports describes.
func asNsight(t *testing.T, list []recordedEvent) string {
	path := filepath.Join(t.TempDir(), "job.sqlite")
	db := sqlitetest.Open(t, path)
	defer func() { require.NoError(t, db.Close()) }()
	do := func(text string, values ...any) {
		_, err := db.ExecContext(t.Context(), text, values...)
		require.NoError(t, err)
	}
	do(`CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
 correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
 correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, domainId INTEGER);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000);
INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3');`)
	const process = 1 << 24
	for i, e := range list {
		start, end := 1000*e.start, 1000*e.end
		do("INSERT INTO StringIds VALUES (?, ?)", i+1, e.name)
		switch e.kind {
		case "call":
			do("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", start, end, process|1, e.correlation, i+1)
		case "range":
			do("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, 0)", start, end, e.name, process|1)
		case "kernel":
			do("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 7, ?, ?, ?, ?)", start, end, e.correlation, process, i+1, i+1)
		case "memcpy":
			do("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, 0, 1, 7, ?, ?, 80000000, 1, 0, 2)", start, end, e.correlation, process)
		}
	}
	return path
}

// statement is what a producer states about a cause.
type statement struct {
	title, remedy, subject string
	threshold, share       float64
	gain                   time.Duration
}

func statements(list []finding.Finding) map[string]statement {
	all := map[string]statement{}
	for _, f := range list {
		k, _ := semconv.LookupFindingKind(f.Kind)
		all[f.Kind] = statement{k.Title, f.Remedy, f.Subject, f.Threshold, f.Share, f.Gain}
	}
	return all
}

// findingsOn returns the findings on the spans of a name's beginning.
func findingsOn(prefix string, batches ...ptrace.Traces) (list []finding.Finding) {
	for _, td := range batches {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					for _, e := range s.Events().All() {
						if f, ok := profiletracetest.FindingOf(prefix, e); ok && strings.HasPrefix(s.Name(), prefix) {
							list = append(list, f)
						}
					}
				}
			}
		}
	}
	return list
}

// converted returns what the command convert prints, the spans that it writes and the data of its
// page.
func converted(t *testing.T, path string) (printed string, spans []ptrace.Traces, state page.State) {
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), buildCollector(t), "convert", "--html", "--out", dir, path).CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range lines(t, filepath.Join(dir, "spans.json")) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		spans = append(spans, td)
	}
	html, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(html), `id="state">`)
	require.True(t, ok)
	data, _, _ := strings.Cut(rest, "</script>")
	require.NoError(t, json.Unmarshal([]byte(data), &state))
	return string(out), spans, state
}

// expected is a finding that the facts of a test have.
type expected struct {
	kind      string
	gain      time.Duration
	share     float64
	threshold map[string]float64 // other than the usual
	subject   map[string]string  // other than the usual
	without   []string           // producers that cannot know it, with the reason where they are listed
	noGain    []string           // producers that do not know what it costs
}

func (want *expected) check(t *testing.T, subject string, producers map[string]map[string]statement) {
	known, ok := semconv.LookupFindingKind(want.kind)
	require.True(t, ok)
	for name, list := range producers {
		got, ok := list[want.kind]
		if slices.Contains(want.without, name) {
			assert.False(t, ok, "%s knows %s now: compare it", name, want.kind)
			continue
		}
		if !assert.True(t, ok, "%s: no %s in %v", name, want.kind, list) {
			continue
		}
		threshold := known.Threshold
		if v, ok := want.threshold[name]; ok {
			threshold = v
		}
		assert.Equal(t, known.Title, got.title, name)
		assert.Equal(t, known.Remedy, got.remedy, name)
		assert.InDelta(t, threshold, got.threshold, 1e-12, name)
		assert.Equal(t, cmp.Or(want.subject[name], subject), got.subject, name)
		if slices.Contains(want.noGain, name) {
			assert.Zero(t, got.gain, name)
			continue
		}
		assert.InEpsilon(t, want.gain, got.gain, 0.002, "%s %s", name, want.kind)
		assert.InEpsilon(t, want.share, got.share, 0.002, "%s %s", name, want.kind)
	}
}

// The profile of a process, in two formats, as receivers put it on spans and as convert prints it
// and writes it to spans and to a page, the report of the process itself and the live page agree on
// what costs time. (The demo prints the page's findings; its own test compares them. The
// gpu_capture receiver compares a capture with a profile in its package, because it needs a stub of
// CUPTI.)
func TestTheSameFactsGiveTheSameFindingEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	job := stepsThatWaitAndCopy()
	producers := map[string]map[string]statement{}
	var live []ptrace.Traces
	read := func(name string, read func(func(context.Context, ptrace.Traces) error) ([]facts.Report, error)) []finding.Finding {
		live = nil
		devices, err := read(func(_ context.Context, td ptrace.Traces) error {
			live = append(live, td)
			return nil
		})
		require.NoError(t, err, name)
		require.Len(t, devices, 1, name)
		producers[name+", report"] = statements(devices[0].Findings)
		producers[name+", spans"] = statements(findingsOn("GPU 0", live...))
		return devices[0].Findings
	}
	text := filepath.Join(t.TempDir(), "job.json")
	require.NoError(t, os.WriteFile(text, []byte(asPyTorch(job, "")), 0o600))
	if sqlitetest.Available() {
		read("nsys", func(next func(context.Context, ptrace.Traces) error) ([]facts.Report, error) {
			o := nsysreceiver.Options{Detail: kinetoreceiver.DetailKernels}
			st, err := nsysreceiver.ReadFile(t.Context(), asNsight(t, job), o, next)
			return st.Devices, err
		})
	}
	list := read("kineto", func(next func(context.Context, ptrace.Traces) error) ([]facts.Report, error) {
		st, err := kinetoreceiver.ReadFile(t.Context(), text, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels}, next)
		return st.Devices, err
	})

	printed, spans, state := converted(t, text)
	producers["convert, spans"] = statements(findingsOn("GPU 0", spans...))
	producers["convert, page"] = statements(state.Profiles[0].Devices[0].Findings)
	for _, f := range list {
		assert.Contains(t, printed, f.String())
	}

	prof, err := gpuspan.New(nil, gpuspan.WithReport(), gpuspan.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	device := prof.Stream(0, "device", gpuspan.OnDevice(backend.Device{UUID: "GPU-1"}))
	computing := gpuspan.NewOperation("train")
	copies := gpuspan.NewOperation("h2d", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pageable))
	for i := range int64(steps) {
		at := time.Unix(i+1, 0)
		computing.RecordMeasured(t.Context(), device, at, 90*time.Millisecond, gpuspan.Work{})
		copies.RecordMeasured(t.Context(), device, at.Add(90*time.Millisecond), copyTime*time.Millisecond, gpuspan.Work{})
	}
	require.NoError(t, prof.Shutdown(t.Context()))
	sum := prof.Snapshot()
	sum.Loops = []report.Loop{{
		Name: "train", Steps: steps, Waiting: steps * loadTime * time.Millisecond,
		Duration: report.Durations{Count: steps, Total: steps * stepTime * time.Millisecond},
	}}
	own := map[string]statement{}
	for _, f := range sum.Findings(report.Thresholds{}) {
		own[string(f.Kind)] = statement{f.Kind.Title(), f.Remedy, f.Subject, f.Threshold, f.Value, f.Cost}
	}
	producers["gpuspan/report"] = own

	m := page.NewWithClock(func() time.Time { return time.Unix(1_700_000_000+5, 0) })
	for _, td := range live {
		m.Traces(td)
	}
	producers["page"] = statements(m.State(page.Query{Range: time.Minute}).Findings)

	for _, want := range []expected{
		{
			kind: semconv.GPUFindingKindLoader, gain: steps * loadTime * time.Millisecond, share: 0.2,
			subject: map[string]string{"gpuspan/report": "loop train"}, // a process knows its loops
			without: []string{"page"},                                  // live spans do not state what the host waits for
		},
		{
			kind: semconv.GPUFindingKindPageableCopies, gain: steps * copyTime * time.Millisecond, share: 0.1,
			threshold: map[string]float64{
				"page": semconv.FindingPageableCopiesLiveThreshold, "gpuspan/report": semconv.FindingPageableCopiesLiveThreshold,
			},
			// The operation: live copies are not compared with the window of a device.
			subject: map[string]string{"gpuspan/report": "h2d", "page": "Memcpy HtoD (Pageable -> Device)"},
			noGain:  []string{"page"}, // whether kernels hide the copies is not known live
		},
	} {
		want.check(t, "GPU 0", producers)
	}
}

// ranksOfAJob returns the profiles of four ranks. Every step but the first, rank 2 computes 20 ms
// longer than the others, which wait for it at a collective that takes 20 ms.
func ranksOfAJob() (list []string) {
	for rank := range 4 {
		var events []recordedEvent
		at := int64(1000)
		for i := range int64(steps) {
			begin, own, late := at, int64(60_000), int64(0)
			if i > 0 {
				late = 20_000
			}
			end := begin + own + late + 20_000
			if rank == 2 {
				own += late
			}
			work := func(name string, start, end, id int64) {
				events = append(events, recordedEvent{"call", "cudaLaunchKernel", start - 10, start - 5, int(id)},
					recordedEvent{"kernel", name, start, end, int(id)})
			}
			events = append(events, recordedEvent{"range", fmt.Sprint("ProfilerStep#", i), begin - 20, end - 30, 0})
			work("gemm", begin, begin+own, 2*i+1)
			work("ncclDevKernel_AllReduce_Sum_f32_RING_LL", begin+own, end, 2*i+2)
			at = end
		}
		list = append(list, asPyTorch(events, fmt.Sprintf(`"distributedInfo":{"rank":%d,"world_size":4},`, rank)))
	}
	return list
}

// A late rank is the same finding in the profiles of the others, in the comparison of all ranks, on
// the spans of gpu_metrics and on the live page.
func TestALateRankIsTheSameFindingEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("the Collector is not built and run with -short")
	}
	const late, window = (steps - 1) * 20 * time.Millisecond, (80 + (steps-1)*100) * time.Millisecond
	dir := t.TempDir()
	producers := map[string]map[string]statement{}
	var live []ptrace.Traces
	for rank, text := range ranksOfAJob() {
		path := filepath.Join(dir, fmt.Sprintf("rank%d.json", rank))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels, JobID: "job"},
			func(_ context.Context, td ptrace.Traces) error {
				live = append(live, td)
				return nil
			})
		require.NoError(t, err)
		if rank != 2 {
			producers[fmt.Sprintf("kineto, rank %d", rank)] = statements(st.Devices[0].Findings)
		}
	}
	printed, spans, _ := converted(t, dir)
	job := findingsOn("ranks of a job", spans...)
	require.Len(t, job, 1)
	sentence := fmt.Sprintf("rank 2 of 4 is late in %d of %d steps, by 20ms on average", steps-1, steps)
	require.Equal(t, sentence, job[0].Chain[0])
	require.Equal(t, 4, strings.Count(strings.Join(strings.Fields(printed), " "), sentence),
		"on the job, and in the findings of the other three files")
	job[0].Subject = "rank 2" // the event has the rank as an attribute
	producers["convert, ranks"] = statements(job)

	m := page.NewWithClock(func() time.Time { return time.Unix(1_700_000_000+5, 0) })
	factory, sink := gpumetricsconnector.NewFactory(), &consumertest.TracesSink{}
	connector, err := factory.CreateTracesToTraces(t.Context(), connectortest.NewNopSettings(factory.Type()),
		factory.CreateDefaultConfig(), sink)
	require.NoError(t, err)
	require.NoError(t, connector.Start(t.Context(), componenttest.NewNopHost()))
	for _, td := range live {
		m.Traces(td)
		require.NoError(t, connector.ConsumeTraces(t.Context(), td))
	}
	require.NoError(t, connector.Shutdown(t.Context()))
	var sum statement
	for _, td := range sink.AllTraces() {
		m.Traces(td)
		for _, rs := range td.ResourceSpans().All() {
			rank, ok := rs.Resource().Attributes().Get("gpu.job.rank")
			require.True(t, ok)
			for _, s := range rs.ScopeSpans().At(0).Spans().All() {
				a := s.Attributes().AsRaw()
				require.Equal(t, semconv.GPUFindingKindLateRank, a["gpu.finding.kind"])
				require.Regexp(t, `^rank 2 of 4 is late by (20|19\.9\d)ms`, a["gpu.finding.evidence"])
				sum.remedy, sum.threshold, sum.subject = a["gpu.finding.remedy"].(string), a["gpu.finding.threshold"].(float64),
					fmt.Sprint("rank ", rank.Int())
				sum.gain += time.Duration(1e9 * a["gpu.finding.gain"].(float64))
				assert.InEpsilon(t, 0.2, a["gpu.finding.share"], 0.002, "of a step")
			}
		}
	}
	known, _ := semconv.LookupFindingKind(semconv.GPUFindingKindLateRank)
	sum.title, sum.share = known.Title, sum.gain.Seconds()/window.Seconds()
	producers["gpu_metrics, all steps"] = map[string]statement{known.Kind: sum}
	onPage := m.State(page.Query{Range: time.Minute}).Findings
	producers["page"] = statements(onPage)
	at := slices.IndexFunc(onPage, func(f finding.Finding) bool { return f.Kind == semconv.GPUFindingKindLateRank })
	require.Contains(t, onPage[at].Chain[0], strings.TrimSuffix(sentence, "20ms on average"))

	const lower = semconv.FindingLateRankLiveThreshold // many steps are compared
	want := expected{
		kind: known.Kind, gain: late, share: late.Seconds() / window.Seconds(),
		threshold: map[string]float64{"convert, ranks": lower, "page": lower, "gpu_metrics, all steps": lower},
		subject:   map[string]string{}, // the profile of one rank does not know who is late
	}
	for _, rank := range []int{0, 1, 3} {
		want.subject[fmt.Sprintf("kineto, rank %d", rank)] = "GPU 0"
	}
	want.check(t, "rank 2", producers)
}
