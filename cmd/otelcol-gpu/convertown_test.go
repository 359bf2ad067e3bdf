// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// A trace of sections, as written by the demo, is converted to a table of its spans, without an analysis as a profile,
// and to the same trace.
func TestConvertRestoresItsOwnTraces(t *testing.T) {
	const start = 1_800_000_000_000_000_000
	var file []chrometrace.Event
	add := func(span byte, name, kind string, from, length int64, args ...chrometrace.Arg) {
		e := chrometrace.Event{
			Process: chrometrace.Process{Service: "training"}, Name: name, Start: start + from, End: start + from + length,
			Trace: [16]byte{1}, Span: [8]byte{span}, Parent: [8]byte{1}, Args: append(args,
				chrometrace.Arg{Key: "gpu.operation.type", Value: chrometrace.String(kind)},
				chrometrace.Arg{Key: "gpu.device.ordinal", Value: chrometrace.Int(0)},
				chrometrace.Arg{Key: "gpu.timing.source", Value: chrometrace.String("simulated")}),
		}
		e.Classify()
		file = append(file, e)
	}
	seconds := func(s float64) chrometrace.Arg {
		return chrometrace.Arg{Key: "gpu.duration", Value: chrometrace.Float(s)}
	}
	add(2, "backward", "section", 0, 400_000, seconds(350e-6))
	add(3, "mlp", "section", 1000, 5000, seconds(5e-6))
	add(4, "h2d.batch", "copy", 500_000, 1000, seconds(1e-6), chrometrace.Arg{
		Key:   "gpu.io.size",
		Value: chrometrace.Int(4096),
	})
	path := filepath.Join(t.TempDir(), "trace.json")
	out, err := os.Create(path)
	require.NoError(t, err)
	w := chrometrace.NewWriter(out)
	require.NoError(t, w.Write(file))
	require.NoError(t, w.Close())
	require.NoError(t, out.Close())

	dirs := []string{t.TempDir(), t.TempDir()}
	for i, from := range []string{path, filepath.Join(dirs[0], "trace.json")} {
		text, problems, err := inProcess(t, "convert", "--out", dirs[i], from)
		require.NoError(t, err)
		assert.Empty(t, problems)
		assert.Contains(t, text, from+": 3 spans\n\n", "nothing is remarked")
		assert.Regexp(t, `backward +section +1 +350\.00 µs`, text)
		assert.Regexp(t, `h2d\.batch +copy +1 +1\.00 µs`, text)
		n := 0
		eachSpan(t, filepath.Join(dirs[i], "spans.json"), func(rs ptrace.ResourceSpans, s ptrace.Span) {
			n++
			source, _ := s.Attributes().Get("gpu.timing.source")
			assert.Equal(t, "simulated", source.Str(), "of copies too")
			assert.Equal(t, map[string]any{"service.name": "training"}, rs.Resource().Attributes().AsRaw())
		})
		assert.Equal(t, 3, n)
	}
	a, err := os.ReadFile(filepath.Join(dirs[0], "trace.json"))
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dirs[1], "trace.json"))
	require.NoError(t, err)
	assert.Equal(t, string(a), string(b))
}

// For a trace that was converted from a profile, convert prints the same about devices.
func TestConvertRepeatsItsReportOfAProfile(t *testing.T) {
	again := func(t *testing.T, profile string) (string, string) {
		var told [2]string
		for i := range told {
			dir := t.TempDir()
			// Read once, but not alone: spans have no tree of modules.
			text, _, err := inProcess(t, "convert", "--out", dir, profile, profile)
			require.NoError(t, err)
			head, _, _ := strings.Cut(text, "\n\n")
			_, told[i], _ = strings.Cut(head, "\n")
			told[i], _, _ = strings.Cut(told[i], "\n"+profile+": skipped, because it is the same profile")
			profile = filepath.Join(dir, "trace.json")
		}
		return told[0], told[1]
	}
	small := filepath.Join(t.TempDir(), "small.json")
	require.NoError(t, os.WriteFile(small, []byte(`{"deviceProperties":[{"id":0,"name":"A100"}],"traceEvents":[
		{"ph":"X","cat":"kernel","name":"a","ts":10,"dur":5,"pid":0,"tid":7,"args":{"device":0,"stream":7}},
		{"ph":"X","cat":"kernel","name":"b","ts":90,"dur":10,"pid":0,"tid":7,"args":{"device":0,"stream":7}}]}`), 0o600))
	first, second := again(t, small)
	assert.Equal(t, []string{
		"    unexplained_idle, GPU 0: the cause is not recorded -> GPU 0 idle for 75µs; up to 75µs (83.3 %) to gain; no call in the file launched the next activity " +
			"(threshold 5 %, certainty low); try: record the runtime's calls and the host's ranges too",
		"    GPU 0 (A100): 90µs = computing 15µs (16.7 %) + idle 75µs (83.3 %) (unknown 75µs)",
	}, strings.Split(first, "\n"))
	assert.Equal(t, first+"\n    "+partial, second)

	for _, name := range []string{
		"kineto/hta/nccl_parser_config/nccl_data.json.gz", "kineto/tracelens/b200/eager_trace.json.gz",
		"kineto/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "nsys/nsys-ai/mfu_2gpu_before.sqlite",
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			first, second := again(t, recorded.Path(t, name))
			assert.Contains(t, first, "GPU 0")
			want := []string{"    " + partial}
			for line := range strings.SplitSeq(first, "\n") {
				if !strings.Contains(line, "omitted") { // of the profile
					want = append(want, line)
				}
			}
			assert.ElementsMatch(t, want, strings.Split(second, "\n"), "in the order of the file")
		})
	}
}
