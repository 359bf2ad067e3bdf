// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
)

// Tests both ends of the NVTX contract: gpuspan/nvtx writes the ranges of a program, Nsight Systems
// records them, and work launched within each becomes a child of the span that the program itself
// exported. If nsys is not installed (OTELGPU_NSYS names one), the test reads its recorded export,
// testdata/ranges.sql, of 100 ranges from nsys 2022.4.2.
func TestEachRangeOfALiveProgramIsItsOwnSpan(t *testing.T) {
	t.Run("recorded", func(t *testing.T) {
		dump, err := os.ReadFile(filepath.Join("testdata", "ranges.sql"))
		require.NoError(t, err)
		said, err := os.ReadFile(filepath.Join("testdata", "ranges.txt"))
		require.NoError(t, err)
		var statements []string
		for s := range strings.SplitSeq(string(dump), ";\n") {
			if s = strings.TrimSpace(s); s != "" {
				statements = append(statements, s)
			}
		}
		checkRanges(t, export(t, statements...), string(said), 100)
	})
	t.Run("live", func(t *testing.T) {
		n := newNsys(t)
		said := n.profile("all")
		checkRanges(t, n.exported("all"), said, 1000)
		// The tool's own views work, too: a row per operation, and a capture that an operation
		// starts.
		out := n.run(n.path, "stats", "-r", "nvtxsum", "all.nsys-rep")
		for _, op := range []string{"prefill", "decode", "sample", "copy"} {
			assert.Equal(t, 1, strings.Count(out, "gpuspan:"+op), out)
		}
		n.profile("capture", "-c", "nvtx", "--capture-range-end=stop", "-p", "decode@gpuspan")
		assert.NotEmpty(t, n.ranges(n.exported("capture")))
	})
}

// checkRanges puts one launch and its kernel into each range of an export and reads it.
func checkRanges(t *testing.T, path, said string, count int) {
	t.Helper()
	want := map[string]bool{}
	for line := range strings.Lines(said) {
		want[strings.TrimSpace(line)] = true
	}
	require.Len(t, want, count, "the program's own spans")
	db := sqlitetest.Open(t, "file:"+strings.NewReplacer("?", "%3f", "#", "%23").Replace(path))
	for _, s := range []string{
		kernel0, runtime0,
		"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT (start + end) / 2, (start + end) / 2 + 1, globalTid, rowid, 0 FROM NVTX_EVENTS WHERE eventType = 60",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT end + 1000, end + 1100, 0, 7, rowid, globalTid / 0x1000000 * 0x1000000, 0, " +
			"1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0 FROM NVTX_EVENTS WHERE eventType = 60",
	} {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())

	ranges, kernels := map[pcommon.SpanID]string{}, []ptrace.Span{}
	_, err := ReadFile(t.Context(), path, Options{Detail: emit.LevelKernels}, func(_ context.Context, td ptrace.Traces) error {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if v, ok := s.Attributes().Get("gpu.operation.type"); ok && v.Str() == "kernel" {
						x := ptrace.NewSpan()
						s.CopyTo(x)
						kernels = append(kernels, x)
					} else {
						ranges[s.SpanID()] = s.Name() + " " + s.TraceID().String() + " " + s.ParentSpanID().String()
					}
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	got := map[string]bool{}
	for _, k := range kernels {
		got[ranges[k.ParentSpanID()]] = true
	}
	assert.Equal(t, want, got)
}

// nsys runs Nsight Systems in a folder of the test.
type nsys struct {
	t                  *testing.T
	path, dir, program string
}

func newNsys(t *testing.T) *nsys {
	path, err := exec.LookPath(cmp.Or(os.Getenv("OTELGPU_NSYS"), "nsys"))
	if err != nil {
		t.Skip("Nsight Systems is not installed (OTELGPU_NSYS names its program)")
	}
	n := &nsys{t: t, path: path, dir: t.TempDir()}
	n.program = filepath.Join(n.dir, "ranges")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", n.program, "./testdata/ranges")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return n
}

func (n *nsys) run(path string, args ...string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), path, args...)
	cmd.Dir = n.dir
	var out strings.Builder
	cmd.Stdout = &out
	cmd.Stderr = &out
	require.NoError(n.t, cmd.Run(), "%s", &out)
	return out.String()
}

// profile records the program and returns its output about its spans.
func (n *nsys) profile(name string, more ...string) string {
	n.t.Helper()
	args := append([]string{"profile", "-t", "nvtx", "--sample=none", "--cpuctxsw=none", "-o", name}, more...)
	out := n.run(n.path, append(args, n.program, "1000")...)
	var said []string
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && len(f[1]) == 32 && len(f[2]) == 16 {
			said = append(said, line)
		}
	}
	return strings.Join(said, "")
}

// exported returns the path of a recording's SQLite file.
func (n *nsys) exported(name string) string {
	n.t.Helper()
	if _, err := os.Stat(filepath.Join(n.dir, name+".nsys-rep")); err != nil {
		// In case the tool does not find its importer, such as when it was unpacked by hand.
		importer := filepath.Join(filepath.Dir(n.path), "..", "host-linux-x64", "QdstrmImporter")
		n.run(importer, "-i", name+".qdstrm")
	}
	n.run(n.path, "export", "--type", "sqlite", "-o", name+".sqlite", name+".nsys-rep")
	return filepath.Join(n.dir, name+".sqlite")
}

// ranges returns the names of an export's ranges.
func (n *nsys) ranges(path string) (out []string) {
	n.t.Helper()
	db := sqlitetest.Open(n.t, path)
	defer func() { require.NoError(n.t, db.Close()) }()
	rows, err := db.QueryContext(n.t.Context(),
		"SELECT s.value FROM NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId WHERE n.eventType = 60")
	require.NoError(n.t, err)
	defer func() { require.NoError(n.t, rows.Close()) }()
	for rows.Next() {
		var name string
		require.NoError(n.t, rows.Scan(&name))
		out = append(out, name)
	}
	require.NoError(n.t, rows.Err())
	return out
}
