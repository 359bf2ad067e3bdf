// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

// inProcess runs the program's command in this process.
func inProcess(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd, _, err := command()
	require.NoError(t, err)
	var out, problems bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&problems)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), problems.String(), err
}

// lines calls f with each request of an OTLP JSON file.
func lines(t *testing.T, path string, f func([]byte)) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	r := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			f(line)
		}
		if err != nil {
			return
		}
	}
}

func eachSpan(t *testing.T, path string, f func(ptrace.ResourceSpans, ptrace.Span)) {
	t.Helper()
	var u ptrace.JSONUnmarshaler
	lines(t, path, func(line []byte) {
		td, err := u.UnmarshalTraces(line)
		require.NoError(t, err)
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					f(rs, s)
				}
			}
		}
	})
}

func countMetrics(t *testing.T, path string) map[string]int {
	t.Helper()
	names := map[string]int{}
	var u pmetric.JSONUnmarshaler
	lines(t, path, func(line []byte) {
		md, err := u.UnmarshalMetrics(line)
		require.NoError(t, err)
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					names[m.Name()]++
				}
			}
		}
	})
	return names
}

type reference struct {
	Kineto  *bool
	Devices map[string]struct {
		Activities map[string]int64
		Busy       int64 `json:"busy_ns"`
		KernelSum  int64 `json:"kernel_sum_ns"`
		Copies     map[string]struct {
			Count, Bytes int64
			Sum          int64 `json:"sum_ns"`
		}
	}
}

type interval struct{ start, end int64 }

// union returns the length of the union of the intervals.
func union(list []interval) (total int64) {
	slices.SortFunc(list, func(a, b interval) int { return cmp.Compare(a.start, b.start) })
	end := int64(-1 << 62)
	for _, i := range list {
		if i.end > end {
			total += i.end - max(i.start, end)
			end = i.end
		}
	}
	return total
}

// Compares the command's output for every recorded profile with results of other programs.
func TestConvertedProfilesHaveTheReferenceNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("every recorded profile is converted without -short only")
	}
	root := recorded.Path(t, "kineto")
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if file, ok := strings.CutSuffix(path, ".ref.json"); ok {
			files = append(files, file)
		}
		return err
	}))
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file + ".ref.json")
			require.NoError(t, err)
			var want reference
			require.NoError(t, json.Unmarshal(text, &want))
			dir := t.TempDir()
			stdout, stderr, err := inProcess(t, "convert", "--detail", "kernels", "--out", dir, file)
			if want.Kineto != nil && !*want.Kineto {
				require.ErrorIs(t, err, convert.ErrSomeFailed)
				require.Contains(t, stderr, filepath.Base(file))
				require.Contains(t, stderr, "not a Chrome trace")
				require.NoFileExists(t, filepath.Join(dir, "spans.json"))
				return
			}
			require.NoError(t, err, stderr)
			if len(want.Devices) == 0 {
				require.Contains(t, stdout, "no GPU operations")
			} else {
				require.Contains(t, stdout, "OPERATION")
			}
			for id := range want.Devices {
				require.Contains(t, stdout, "\n    GPU "+id)
			}
			requireReference(t, want, filepath.Join(dir, "spans.json"))
			trace, err := os.ReadFile(filepath.Join(dir, "trace.json"))
			require.NoError(t, err)
			require.True(t, json.Valid(trace))
		})
	}
}

func requireReference(t *testing.T, want reference, spans string) {
	t.Helper()
	type device struct {
		busy    []interval
		kinds   map[string]int64
		kernel  int64
		copies  int64
		moved   int64
		copying int64
	}
	got := map[string]*device{}
	eachSpan(t, spans, func(_ ptrace.ResourceSpans, s ptrace.Span) {
		kind, _ := s.Attributes().Get(string(semconv.GPUOperationTypeKey))
		ordinal, ok := s.Attributes().Get(string(semconv.GPUDeviceOrdinalKey))
		if !ok {
			return
		}
		i := interval{int64(s.StartTimestamp()), int64(s.EndTimestamp())}
		d := got[strconv.FormatInt(ordinal.Int(), 10)]
		if d == nil {
			d = &device{kinds: map[string]int64{}}
			got[strconv.FormatInt(ordinal.Int(), 10)] = d
		}
		switch kind.Str() {
		case semconv.GPUOperationTypeKernel, semconv.GPUOperationTypeCollective:
			d.kinds["kernel"]++
			d.kernel += i.end - i.start
		case semconv.GPUOperationTypeCopy:
			d.kinds["memcpy"]++
			d.copies++
			d.copying += i.end - i.start
			if size, ok := s.Attributes().Get(string(semconv.GPUIOSizeKey)); ok {
				d.moved += size.Int()
			}
		case semconv.GPUOperationTypeMemset:
			d.kinds["memset"]++
		default:
			return
		}
		d.busy = append(d.busy, i)
	})
	for ordinal, w := range want.Devices {
		g := got[ordinal]
		require.NotNil(t, g, "device %s", ordinal)
		require.Equal(t, w.Busy, union(g.busy), "busy time of device %s, ns", ordinal)
		require.Equal(t, w.KernelSum, g.kernel, "kernel time of device %s, ns", ordinal)
		require.Equal(t, w.Activities, g.kinds, "activities of device %s", ordinal)
		var copies, moved, copying int64
		for _, c := range w.Copies {
			copies += c.Count
			moved += c.Bytes
			copying += c.Sum
		}
		require.Equal(t, []int64{copies, moved, copying}, []int64{g.copies, g.moved, g.copying}, "copies of device %s",
			ordinal)
	}
}

func TestBrokenProfilesAreRefusedByNameAndTheOthersConverted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("good.json",
		`{"traceEvents":[{"ph":"X","cat":"kernel","name":"saxpy","ts":10,"dur":5,"pid":0,"tid":7,"args":{"device":0,"stream":7}}]}`)
	bad := map[string]string{
		write("empty.json", ""):                            "empty",
		write("foreign.json", `{"nodes":[]}`):              "not a Chrome trace",
		write("text.json", "hello"):                        "not a Chrome trace",
		write("cut.json", `{"traceEvents":[{"ph":"X","ca`): "ends",
		write("cut.json.gz", "\x1f\x8b\x08\x00\x00\x00"):   "cut.json.gz",
		filepath.Join(dir, "missing.json"):                 "no such file",
		filepath.Join(dir, "no profiles"):                  "no file ends in .json, .json.gz, .json.zst, .sqlite",
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "no profiles"), 0o700))
	args := []string{"convert", "--detail", "kernels", "--out", filepath.Join(dir, "out"), good}
	for path := range bad {
		args = append(args, path)
	}
	stdout, stderr, err := inProcess(t, args...)
	require.ErrorIs(t, err, convert.ErrSomeFailed)
	for path, reason := range bad {
		i := slices.IndexFunc(strings.Split(stderr, "\n"), func(line string) bool {
			return strings.Contains(line, path) && strings.Contains(line, reason)
		})
		require.GreaterOrEqual(t, i, 0, "%s: %s\n%s", path, reason, stderr)
	}
	require.Contains(t, stdout, "saxpy")
	found := 0
	eachSpan(t, filepath.Join(dir, "out", "spans.json"), func(_ ptrace.ResourceSpans, s ptrace.Span) {
		if s.Name() == "saxpy" {
			found++
			require.Equal(t, uint64(5000), uint64(s.EndTimestamp()-s.StartTimestamp()))
		}
	})
	require.Equal(t, 1, found)
}

// One kernel has an invalid time. The finding is computed from the others, and neither trace nor spans contain it.
func TestConvertNamesAnOutlyingEvent(t *testing.T) {
	var events []string
	for i := range 40 {
		events = append(events, fmt.Sprintf(
			`{"ph":"X","cat":"kernel","name":"saxpy","ts":%d,"dur":95,"pid":0,"tid":7,"args":{"device":0,"stream":7}}`, i*100))
	}
	events = append(events,
		`{"ph":"X","cat":"kernel","name":"odd","ts":31536000000000,"dur":5,"pid":0,"tid":7,"args":{"device":0,"stream":7}}`)
	dir := t.TempDir()
	path := filepath.Join(dir, "p.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"traceEvents":[`+strings.Join(events, ",")+`]}`), 0o600))
	out := filepath.Join(dir, "out")
	stdout, stderr, err := inProcess(t, "convert", "--detail", "kernels", "--out", out, path)
	require.NoError(t, err)
	said := stdout + stderr
	require.Contains(t, said, `"odd" is omitted: it begins 365.0 days after all other events`)
	require.Contains(t, said, "1 events omitted: time more than a day from all other events")
	require.NotContains(t, said, "idle for")
	for _, name := range []string{"trace.json", "spans.json"} {
		text, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		require.Contains(t, string(text), "saxpy", name)
		require.NotContains(t, string(text), "odd", name)
	}
}

func TestConvertNeedsFilesAndAFolder(t *testing.T) {
	_, _, err := inProcess(t, "convert", "--out", t.TempDir())
	require.EqualError(t, err, "convert takes profiles or directories (otelcol-gpu convert --html FILE), found 0")
	_, _, err = inProcess(t, "convert", "x.json")
	require.EqualError(t, err, "no output directory (set --out DIR, or --html to use otelgpu-report)")
	_, _, err = inProcess(t, "convert", "--detail", "everything", "--out", t.TempDir(), "x.json")
	require.ErrorContains(t, err, "everything")
}

func TestAFolderMeansItsProfiles(t *testing.T) {
	folder := t.TempDir()
	for i, name := range []string{"b/rank1.json", "a.json", "notes.txt", "a.json.1.partial"} {
		trace := fmt.Sprintf(
			`[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":2,"args":{"device":0,"stream":7}}]`, 5+i)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(trace), 0o600))
	}
	other := filepath.Join(folder, "config.json")
	require.NoError(t, os.WriteFile(other, []byte(`{"layers": 3}`), 0o600))
	results := filepath.Join(folder, "out")
	for range 2 { // its own results are not profiles
		stdout, stderr, err := inProcess(t, "convert", "--out", results, folder)
		require.NoError(t, err, stderr)
		require.Equal(t, 1, strings.Count(stdout, filepath.Join(folder, "a.json")+": 2 spans"), stdout)
		require.Equal(t, 1, strings.Count(stdout, filepath.Join(folder, "b", "rank1.json")+": 2 spans"), stdout)
		require.Equal(t, 2, strings.Count(stdout, " spans\n"), stdout)
		require.Contains(t, stdout, other+": skipped: not a Chrome trace: it has no traceEvents\n")
	}
	_, stderr, err := inProcess(t, "convert", "--out", results, other)
	require.Error(t, err)
	require.Contains(t, stderr, "it has no traceEvents", "a file that is named is an error")
}
