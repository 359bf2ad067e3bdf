// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
)

// A trace of sections, as the demo writes one, is converted to the table of its spans, without an analysis that takes
// it for a profile, and to the same trace.
func TestConvertRestoresItsOwnTraces(t *testing.T) {
	const start = 1_800_000_000_000_000_000
	var file []chrometrace.Event
	add := func(span byte, name, kind string, from, length int64, args ...chrometrace.Arg) {
		e := chrometrace.Event{
			Process: chrometrace.Process{Service: "training"}, Name: name, Start: start + from, End: start + from + length,
			Trace: [16]byte{1}, Span: [8]byte{span}, Parent: [8]byte{1}, Args: append(args,
				chrometrace.Arg{Key: "gpu.operation.type", Value: chrometrace.String(kind)}, chrometrace.Arg{Key: "gpu.device.ordinal", Value: chrometrace.Int(0)},
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
	add(4, "h2d.batch", "copy", 500_000, 1000, seconds(1e-6), chrometrace.Arg{Key: "gpu.io.size", Value: chrometrace.Int(4096)})
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
