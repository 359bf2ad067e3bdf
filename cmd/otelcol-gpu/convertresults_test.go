// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
)

// kernels returns a trace of n kernels with one name.
func kernels(name string, n int) string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprintf(
			`{"ph":"X","cat":"kernel","name":%q,"ts":%d,"dur":5,"pid":0,"tid":7,"args":{"device":0,"stream":7}}`, name, 10*i+10)
	}
	return `{"traceEvents":[` + strings.Join(events, ",") + `]}`
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func namesOf(t *testing.T, spans string) map[string]int {
	t.Helper()
	names := map[string]int{}
	eachSpan(t, spans, func(_ ptrace.ResourceSpans, s ptrace.Span) { names[s.Name()]++ })
	return names
}

func entriesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAProfileThatIsThereTwiceCountsOnce(t *testing.T) {
	dir := t.TempDir()
	text := kernels("saxpy", 3)
	a := writeFile(t, dir, "a.json", text)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	writeFile(t, dir, "b.json.gz", packed.String())
	require.NoError(t, os.Symlink(a, filepath.Join(dir, "c.json")))
	out := filepath.Join(t.TempDir(), "out")
	stdout, stderr, err := inProcess(t, "convert", "--detail", "kernels", "--out", out, dir, a)
	require.NoError(t, err, stderr)
	require.Equal(t, 3, strings.Count(stdout, "skipped, because it is the same profile as "+a), stdout)
	require.Equal(t, 3, namesOf(t, filepath.Join(out, "spans.json"))["saxpy"])
}

func TestRunsIntoOneFolderDoNotMix(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	const runs = 4
	var started []*process // separate processes, because Collectors in one process share file exporters
	for i := range runs {
		file := writeFile(t, dir, fmt.Sprintf("%d.json", i), kernels(fmt.Sprintf("k%d", i), 500))
		started = append(started, start(t, os.Environ(), "convert", "--detail", "kernels", "--out", out, file))
	}
	for _, p := range started {
		require.Zero(t, p.exit(t, time.Minute), &p.stderr)
	}
	require.Equal(t, []string{"findings.json", "spans.json", "trace.json"}, entriesOf(t, out))
	names := namesOf(t, filepath.Join(out, "spans.json"))
	trace, err := os.ReadFile(filepath.Join(out, "trace.json"))
	require.NoError(t, err)
	whole := 0
	for i := range runs {
		if n := names[fmt.Sprintf("k%d", i)]; n > 0 {
			whole++
			require.Equal(t, 500, n)
			require.Contains(t, string(trace), fmt.Sprintf(`"k%d"`, i), "both results are of the same run")
		}
	}
	require.Equal(t, 1, whole)
}

func TestResultsOfAnEarlierRunAreReplacedAtTheEndAndNamed(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	old, recent := writeFile(t, dir, "old.json", kernels("old", 1)), writeFile(t, dir, "new.json", kernels("new", 2))
	_, stderr, err := inProcess(t, "convert", "--out", out, old)
	require.NoError(t, err, stderr)
	first, err := os.ReadFile(filepath.Join(out, "trace.json"))
	require.NoError(t, err)
	writeFile(t, out, "trace-1.json", string(first))
	writeFile(t, out, "trace-2.json", "not a result")

	_, _, err = inProcess(t, "convert", "--out", out, writeFile(t, dir, "bad.json", "{"))
	require.ErrorIs(t, err, convert.ErrSomeFailed)
	left, err := os.ReadFile(filepath.Join(out, "trace.json"))
	require.NoError(t, err)
	require.Equal(t, first, left, "a run that fails leaves the results of the one before")

	stdout, stderr, err := inProcess(t, "convert", "--out", out, recent)
	require.NoError(t, err, stderr)
	require.Contains(t, stdout, "spans.json, trace-1.json, trace.json of an earlier run in "+out+": replaced")
	require.Equal(t, []string{"findings.json", "spans.json", "trace-2.json", "trace.json"}, entriesOf(t, out))

	_, stderr, err = inProcess(t, "convert", "--out", out, filepath.Join(out, "trace.json"))
	require.NoError(t, err, "a result may be converted into its own folder: %s", stderr)
	again, err := os.ReadFile(filepath.Join(out, "trace.json"))
	require.NoError(t, err)
	require.Contains(t, string(again), `"new"`)
}

func TestPartialReadsAreReported(t *testing.T) {
	dir := t.TempDir()
	text := kernels("saxpy", 3)
	cut := writeFile(t, dir, "cut.json", text[:len(text)-30])
	stdout, stderr, err := inProcess(t, "convert", "--out", filepath.Join(dir, "out"), cut)
	require.ErrorIs(t, err, convert.ErrSomePartial)
	require.Contains(t, stderr, fmt.Sprintf("%q could be read only in part", cut))
	require.Contains(t, stdout, "truncated: the file ends at byte")
	reasons := 0
	eachSpan(t, filepath.Join(dir, "out", "spans.json"), func(_ ptrace.ResourceSpans, s ptrace.Span) {
		if v, ok := s.Attributes().Get("gpu.trace.partial"); ok {
			reasons++
			require.Equal(t, "pytorch profile", s.Name())
			require.Contains(t, v.Str(), "truncated: the file ends at byte")
		}
	})
	require.Equal(t, 1, reasons)
}

func TestAFileWithoutSpansIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "nothing.json", `{"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1}]}`)
	stdout, stderr, err := inProcess(t, "convert", "--out", filepath.Join(dir, "out"), file)
	require.ErrorIs(t, err, convert.ErrSomeFailed)
	require.Contains(t, stderr, "it has no device activity and no host range or API call")
	require.Contains(t, stderr, "1 events omitted: event without a category")
	require.NotContains(t, stdout, "perfetto")
	require.NoDirExists(t, filepath.Join(dir, "out"))
}

func TestNamesOfAProfileCannotCommandTheTerminal(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "evil.json", `{"deviceProperties":[{"id":0,"name":"A100\u001b[2J"}],"traceEvents":[
		{"ph":"X","cat":"kernel","name":"k\u001b]0;x\u0007","ts":1,"dur":1,"pid":0,"tid":7,"args":{"device":0,"stream":7}}]}`)
	stdout, stderr, err := inProcess(t, "convert", "--out", filepath.Join(dir, "out"), file,
		filepath.Join(dir, "no\x1b[31m"))
	require.ErrorIs(t, err, convert.ErrSomeFailed)
	require.NotContains(t, stdout+stderr, "\x1b")
	require.Contains(t, stdout, `A100\x1b[2J`)
}
