// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// Of each step of 100 ms the device computes for 70 ms, waits for data for 20 ms and copies from pageable memory for
// 10 ms. Values are ms; the host launches 10 µs ahead.
const (
	steps              = 10
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

func asPyTorch(list []recordedEvent) string {
	var b strings.Builder
	b.WriteString(`{"schemaVersion":1,"baseTimeNanoseconds":1700000000000000000,"deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3"}],"traceEvents":[`)
	for i, e := range list {
		category := map[string]string{"call": "cuda_runtime", "range": "user_annotation", "kernel": "kernel", "memcpy": "gpu_memcpy"}
		pid, tid := 1, 1
		args := fmt.Sprintf(`"correlation":%d`, e.correlation)
		if e.kind == "kernel" || e.kind == "memcpy" {
			pid, tid = 0, 7
			args += `,"device":0,"stream":7,"bytes":80000000`
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
	title, remedy    string
	threshold, share float64
	gain             time.Duration
}

func statements(list []finding.Finding) map[string]statement {
	all := map[string]statement{}
	for _, f := range list {
		k, _ := semconv.LookupFindingKind(f.Kind)
		all[f.Kind] = statement{k.Title, f.Remedy, f.Threshold, f.Share, f.Gain}
	}
	return all
}

// The profile of a process, in two formats, as receivers put it on spans and as convert and its reports have it, the
// report of the process itself and the live page agree on what costs time.
func TestTheSameFactsGiveTheSameFindingEverywhere(t *testing.T) {
	job := stepsThatWaitAndCopy()
	producers := map[string]map[string]statement{}
	var live []ptrace.Traces
	read := func(name string, read func(func(context.Context, ptrace.Traces) error) ([]facts.Report, error)) {
		var events []finding.Finding
		devices, err := read(func(_ context.Context, td ptrace.Traces) error {
			live = append(live, td)
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						for _, e := range s.Events().All() {
							if f, ok := profiletrace.FindingOf("", e); ok && strings.HasPrefix(s.Name(), "GPU 0") {
								events = append(events, f)
							}
						}
					}
				}
			}
			return nil
		})
		require.NoError(t, err, name)
		require.Len(t, devices, 1, name)
		producers[name+", report"], producers[name+", spans"] = statements(devices[0].Findings), statements(events)
	}
	text := filepath.Join(t.TempDir(), "job.json")
	require.NoError(t, os.WriteFile(text, []byte(asPyTorch(job)), 0o600))
	if sqlitetest.Available() {
		read("nsys", func(next func(context.Context, ptrace.Traces) error) ([]facts.Report, error) {
			o := nsysreceiver.Options{Detail: nsysreceiver.DetailKernels}
			st, err := nsysreceiver.ReadFile(t.Context(), asNsight(t, job), o, next)
			return st.Devices, err
		})
	}
	live = nil
	read("kineto", func(next func(context.Context, ptrace.Traces) error) ([]facts.Report, error) {
		st, err := kinetoreceiver.ReadFile(t.Context(), text, kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels}, next)
		return st.Devices, err
	})

	c := report.NewCollector()
	computing, copies := c.Node(0, report.Info{Name: "train"}), c.Node(0, report.Info{Name: "h2d", Type: "copy", HostMemory: "pageable"})
	for i := range int64(steps) {
		at := (i + 1) * int64(time.Second)
		c.Section(computing, report.Sample{Timed: true, Start: at, Duration: 90 * time.Millisecond})
		c.Section(copies, report.Sample{Timed: true, Start: at, Duration: copyTime * time.Millisecond})
		c.Step("train", report.StepSample{Duration: stepTime * time.Millisecond, Waiting: loadTime * time.Millisecond})
	}
	own := map[string]statement{}
	for _, f := range c.Summary().Findings(report.Thresholds{}) {
		own[string(f.Kind)] = statement{f.Kind.Title(), f.Remedy, f.Threshold, f.Value, f.Cost}
	}
	producers["gpuspan/report"] = own

	m := page.NewWithClock(func() time.Time { return time.Unix(1_700_000_000+2, 0) })
	for _, td := range live {
		m.Traces(td)
	}
	producers["page"] = statements(m.State(page.Query{Range: time.Minute}).Findings)

	for _, want := range []struct {
		kind      string
		gain      time.Duration
		threshold map[string]float64 // other than the usual
		without   []string           // they do not know it
	}{
		{
			kind: semconv.GPUFindingKindLoader, gain: steps * loadTime * time.Millisecond,
			without: []string{"page"},
		},
		{
			kind: semconv.GPUFindingKindPageableCopies, gain: steps * copyTime * time.Millisecond,
			threshold: map[string]float64{
				"page": semconv.FindingPageableCopiesLiveThreshold, "gpuspan/report": semconv.FindingPageableCopiesLiveThreshold,
			},
		},
	} {
		known, ok := semconv.LookupFindingKind(want.kind)
		require.True(t, ok)
		for name, list := range producers {
			got, ok := list[want.kind]
			if len(want.without) == 1 && want.without[0] == name {
				assert.False(t, ok, name)
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
			if name != "page" { // it does not know gains of copies
				assert.InEpsilon(t, want.gain, got.gain, 0.002, "%s %s", name, want.kind)
				assert.InEpsilon(t, want.gain.Seconds(), got.share, 0.002, "%s %s: of a second", name, want.kind)
			}
		}
	}
}
