// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gpucapturereceiver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/capturetest"
	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// activity is one activity of a device, from the trace or from the spans.
type activity struct {
	kind, name      string
	start, duration int64 // ns; start relative to the first
	device, stream  int64
	correlation     int64
	bytes           int64
}

// truth reads the activities of a Chrome trace without any code of the project.
func truth(t *testing.T, path string) []activity {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(raw))
		require.NoError(t, err)
		raw, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	var file struct {
		TraceEvents []map[string]any `json:"traceEvents"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&file) != nil {
		return nil
	}
	var out []activity
	for _, e := range file.TraceEvents {
		category, _ := e["cat"].(string)
		if e["ph"] != "X" {
			continue
		}
		args, _ := e["args"].(map[string]any)
		a := activity{name: e["name"].(string), device: -1}
		switch strings.ToLower(category) {
		case "kernel":
			a.kind = "kernel"
		case "memcpy", "gpu_memcpy":
			a.kind = "copy"
			a.bytes = number(args["bytes"])
		case "memset", "gpu_memset":
			a.kind = "memset"
			a.bytes = number(args["bytes"])
		default:
			continue
		}
		a.start, a.duration = micros(e["ts"]), micros(e["dur"])
		a.device, a.stream, a.correlation = number(args["device"]), number(args["stream"]), number(args["correlation"])
		if a.correlation < 0 || a.correlation > 1<<32-1 {
			return nil // not CUPTI's
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil
	}
	first := slices.MinFunc(out, func(a, b activity) int { return cmp.Compare(a.start, b.start) }).start
	for i := range out {
		out[i].start -= first
	}
	return out
}

func number(v any) int64 {
	s := ""
	switch v := v.(type) {
	case json.Number:
		s = v.String()
	case string:
		s = strings.TrimPrefix(v, "stream ")
	}
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// micros reads microseconds as exact ns, by moving the decimal point.
func micros(v any) int64 {
	s := ""
	switch v := v.(type) {
	case json.Number:
		s = v.String()
	case string:
		s = v
	}
	whole, part, _ := strings.Cut(s, ".")
	rounded := (part + "0000")[:4]
	n, _ := strconv.ParseInt(whole+rounded[:3], 10, 64)
	if rounded[3] >= '5' {
		n++
	}
	return n
}

// writeReplay writes the replay file of the CUPTI stub, whose struct entry has 96 bytes.
func writeReplay(t testing.TB, path string, list []activity) {
	t.Helper()
	var b bytes.Buffer
	le := binary.LittleEndian
	b.Write(le.AppendUint64(nil, uint64(len(list))))
	for _, a := range list {
		e := make([]byte, 96)
		kind, name := uint32(10), a.name
		switch a.kind {
		case "copy":
			kind, name = 1, ""
			e[90], e[91], e[92] = copyKinds(a.name)
		case "memset":
			kind, name = 2, ""
		case "peer":
			kind, name = 22, ""
			e[90], e[91], e[92] = 10, 3, 3
		}
		le.PutUint32(e[0:], kind)
		le.PutUint32(e[4:], uint32(a.device))
		le.PutUint32(e[12:], uint32(a.stream))
		le.PutUint32(e[16:], uint32(a.correlation))
		le.PutUint32(e[20:], uint32(len(name)))
		le.PutUint64(e[24:], uint64(a.start))
		le.PutUint64(e[32:], uint64(a.start+a.duration))
		le.PutUint64(e[40:], uint64(a.bytes))
		b.Write(e)
		b.WriteString(name)
	}
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
}

// copyKinds returns CUPTI's numbers for a name such as "Memcpy HtoD (Pinned -> Device)".
func copyKinds(name string) (kind, from, to byte) {
	for i, d := range []string{"HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"} {
		if strings.Contains(name, d) {
			kind = byte(i + 1)
		}
	}
	memory := func(s string) byte {
		return byte(slices.Index([]string{"Unknown", "Pageable", "Pinned", "Device", "Array", "Managed"}, s))
	}
	if _, rest, ok := strings.Cut(name, "("); ok {
		if f, t, ok := strings.Cut(strings.TrimSuffix(rest, ")"), " -> "); ok {
			from, to = memory(f), memory(t)
		}
	}
	return kind, from, to
}

func testConfig(folder string, window time.Duration) *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.Folder, cfg.Window, cfg.Budget = folder, window, maxBudget
	cfg.Spans.Detail = emit.LevelKernels
	return cfg
}

// capture replays activities through the stub, the library and the ring, and returns the activities
// of the spans. Additional consumers may receive the spans.
func capture(t *testing.T, list []activity, more ...func(ptrace.Traces)) ([]activity, Result) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "replay")
	writeReplay(t, file, list)
	p := capturetest.Start(t, dir, "CUPTI_STUB_REPLAY="+file, "CUPTI_STUB_REBASE=1", "CUPTI_STUB_PACE=4000")
	var got []activity
	checked := conformance.Report{Strict: true} // as `otelcol-gpu check`
	res := recordWhile(t, p, func(td ptrace.Traces) {
		checked.Traces(td)
		got = append(got, activitiesOf(td)...)
		for _, f := range more {
			f(td)
		}
	}, func() {
		require.Eventually(t, func() bool { return strings.Contains(p.Stderr(), "cupti stub: replayed") }, time.Minute,
			time.Millisecond)
	})
	require.NoError(t, checked.Err())
	if len(got) > 0 {
		first := slices.MinFunc(got, func(a, b activity) int { return cmp.Compare(a.start, b.start) }).start
		for i := range got {
			got[i].start -= first
		}
	}
	return got, res
}

func activitiesOf(td ptrace.Traces) (out []activity) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				m := s.Attributes()
				kind := text(m, "gpu.operation.type")
				if kind == "" {
					continue
				}
				a := activity{
					kind: kind, name: text(m, "gpu.kernel.name"), start: int64(s.StartTimestamp()),
					duration: int64(s.EndTimestamp() - s.StartTimestamp()),
					device:   integer(ss.Scope().Attributes(), m, "gpu.device.ordinal"), stream: integer(m, m, "gpu.stream.id"),
					correlation: integer(m, m, "gpu.correlation.id"),
				}
				switch kind {
				case "collective":
					a.kind = "kernel"
				case "copy", "memset":
					a.name, a.bytes = s.Name(), integer(m, m, "gpu.io.size")
				}
				out = append(out, a)
			}
		}
	}
	return out
}

func text(m pcommon.Map, k string) string {
	if v, ok := m.Get(k); ok {
		return v.Str()
	}
	return ""
}

func integer(scope, m pcommon.Map, k string) int64 {
	for _, m := range []pcommon.Map{m, scope} {
		if v, ok := m.Get(k); ok {
			return v.Int()
		}
	}
	return 0
}

func sorted(list []activity) []activity {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b activity) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.duration, b.duration), cmp.Compare(a.device, b.device),
			cmp.Compare(a.stream, b.stream), cmp.Compare(a.name, b.name), cmp.Compare(a.correlation, b.correlation),
			cmp.Compare(a.bytes, b.bytes))
	})
	return list
}

func TestRecordedTracesComeThroughExactly(t *testing.T) {
	capturetest.Build(t)
	root := recorded.Path(t, "kineto")
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, ".json") && !strings.Contains(path, ".ref.json") &&
			d.Name() != "truth.json" {
			files = append(files, path)
		}
		return err
	}))
	require.NotEmpty(t, files)
	compared := 0
	for _, path := range files {
		want := truth(t, path)
		if len(want) == 0 || testing.Short() && len(want) > 300 {
			continue
		}
		name, _ := filepath.Rel(root, path)
		t.Run(name, func(t *testing.T) {
			compared++
			for i := range want {
				want[i].name = want[i].name[:min(len(want[i].name), 2048)] // the limit of gpu.kernel.name
				switch want[i].kind {
				case "copy": // the name is derived from CUPTI's kinds; the trace may have the name of another runtime
					k, f, to := copyKinds(want[i].name)
					want[i].name = vocabulary.CopyName(int64(k), int64(f), int64(to))
				case "memset":
					want[i].name = "Memset (Device)"
				}
			}
			got, res := capture(t, want)
			require.Equal(t, "recorded", res.Outcome, res.Message)
			require.Empty(t, res.Dropped)
			require.Equal(t, len(want), len(got))
			want, got = sorted(want), sorted(got)
			for i := range want {
				require.Equal(t, want[i], got[i], "activity %d by start", i)
			}

			// The analysis equals the analysis of the file.
			st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailSteps},
				func(context.Context, ptrace.Traces) error { return nil })
			require.NoError(t, err)
			fromFile := st.Devices
			require.Len(t, res.Devices, len(fromFile))
			for i, d := range fromFile {
				assert.Equal(t, d.Parts, res.Devices[i].Parts, "parts of the window of device %d", i)
			}
		})
	}
	assert.Greater(t, compared, 5)
}

func TestCopiesBetweenDevices(t *testing.T) {
	got, res := capture(t, []activity{
		{kind: "peer", start: 2000, duration: 300, stream: 9, correlation: 6, bytes: 1 << 30},
	})
	assert.Equal(t, "recorded", res.Outcome)
	assert.Equal(t, []activity{
		{
			kind: "copy", name: "Memcpy PtoP (Device -> Device)", start: 0, duration: 300, stream: 9, correlation: 6,
			bytes: 1 << 30,
		},
	}, sorted(got))
}

// The profile of a window contains the time of its activities, and the time between them as idle
// time, to the nanosecond.
func TestProfileOfAWindowHasTheTimeOfItsActivities(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 1))
	var list []activity
	var worked, idle int64
	for device := range int64(2) {
		at, busy := int64(0), int64(0)
		for i := range int64(200) {
			at += rng.Int64N(3000)
			length := 1 + rng.Int64N(2500)
			if i == 0 {
				busy = at
			}
			idle += max(0, at-busy)
			worked, busy = worked+length, max(busy, at+length)
			list = append(list, activity{
				kind: "kernel", name: fmt.Sprint("kernel_", rng.IntN(9)), start: at, duration: length, device: device,
				stream: 7 + i%3, correlation: 1 + 1000*device + i,
			})
		}
	}
	stacks := stackprofile.New(stackprofile.Options{
		MaxGap: -1, MaxStacks: 1e6, MaxSpans: 1e6, Settle: math.MaxInt64, MaxWait: math.MaxInt64,
	})
	got, res := capture(t, list, func(td ptrace.Traces) { stacks.Add(td, time.Now().UnixNano()) })
	require.Len(t, got, len(list), res.Message)
	stacks.Resolve(time.Now().UnixNano(), true)
	totals := stackprofile.Totals(stacks.Take(math.MaxInt64))
	assert.EqualValues(t, worked, totals[stackprofile.Time])
	assert.EqualValues(t, idle, totals[stackprofile.IdleTime])
}

// A capture has the findings of a PyTorch profile with the same activities: what the device waits
// for is recorded by neither, because a capture has no calls of the host.
func TestTheSameActivitiesGiveTheSameFindingsAsAProfile(t *testing.T) {
	capturetest.Build(t)
	const ms = 1_000_000
	var list []activity
	var events []string
	add := func(a activity, category string) {
		a.correlation = int64(len(list) + 1)
		list = append(list, a)
		events = append(events, fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":0,"tid":7,"ts":%d,"dur":%d,"args":{"device":0,"stream":7,`+
			`"correlation":%d,"bytes":%d}}`, category, a.name, a.start/1000, a.duration/1000, a.correlation, a.bytes))
	}
	for i := range int64(10) {
		at := 100 * ms * i
		add(activity{kind: "kernel", name: "gemm", start: at, duration: 70 * ms, stream: 7}, "kernel")
		add(activity{
			kind: "copy", name: "Memcpy HtoD (Pageable -> Device)", start: at + 90*ms, duration: 10 * ms, stream: 7, bytes: 80e6,
		}, "gpu_memcpy")
	}
	path := filepath.Join(t.TempDir(), "job.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"traceEvents":[`+strings.Join(events, ",")+`]}`), 0o600))
	st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailSteps},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	_, res := capture(t, list)
	require.Equal(t, "recorded", res.Outcome, res.Message)
	require.Len(t, res.Devices, 1)
	want, got := st.Devices[0].Findings, res.Devices[0].Findings
	require.GreaterOrEqual(t, len(want), 2)
	require.Equal(t, len(want), len(got))
	for i := range want {
		w, g := &want[i], &got[i]
		require.Equal(t, []string{w.Kind, w.Subject, w.Remedy}, []string{g.Kind, g.Subject, g.Remedy})
		require.Equal(t, []any{w.Gain, w.Threshold, w.Share}, []any{g.Gain, g.Threshold, g.Share}, w.Kind)
	}
	require.Equal(t, semconv.GPUFindingKindUnexplainedIdle, want[0].Kind)
	require.Equal(t, semconv.GPUFindingKindPageableCopies, want[1].Kind)
	require.Equal(t, 100*time.Millisecond, want[1].Gain)
}
