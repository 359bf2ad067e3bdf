// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter/exportertest"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

// The errors that Perfetto reports (without parse times), and how much of the trace it read.
const (
	faults   = `SELECT name, severity, idx, value FROM stats WHERE value > 0 AND name NOT GLOB '*_duration_ns';`
	contents = `SELECT
  (SELECT count(*) FROM slice WHERE category IS NULL OR category != 'event') AS slices,
  (SELECT ifnull(sum(dur), 0) FROM slice) AS length,
  (SELECT count(*) FROM flow) AS flows,
  (SELECT count(*) FROM counter) AS points,
  (SELECT count(*) FROM slice WHERE category = 'event') AS marks,
  (SELECT count(*) FROM process WHERE name IS NOT NULL) AS processes`
)

// needsPerfetto skips a test if there is no trace processor.
func needsPerfetto(t *testing.T) string {
	program := os.Getenv("TRACE_PROCESSOR")
	if program == "" {
		t.Skip("Perfetto is not asked: set TRACE_PROCESSOR to the path of trace_processor_shell")
	}
	return program
}

// perfetto queries Perfetto's trace processor.
func perfetto(t *testing.T, path, query string) [][]string {
	program := needsPerfetto(t)
	queries := filepath.Join(t.TempDir(), "queries.sql")
	require.NoError(t, os.WriteFile(queries, []byte(query), 0o600))
	var out, stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), program, "-q", queries, path)
	c.Stdout, c.Stderr = &out, &stderr
	require.NoError(t, c.Run(), stderr.String())
	rows, err := csv.NewReader(&out).ReadAll()
	require.NoError(t, err)
	require.NotEmpty(t, rows, stderr.String())
	return rows[1:] // the first row has the names of columns
}

// agrees compares what Perfetto reads from a trace with the content of the file.
func agrees(t *testing.T, path string, data []byte) {
	assert.Empty(t, perfetto(t, path, faults), path)
	f, faults := chrometracetest.Read(data)
	require.Empty(t, faults, path)
	var length int64
	for _, r := range f.Of("X") {
		length += r.Dur
	}
	processes := 0
	for _, r := range f.Of("M") {
		if r.Name == "process_name" {
			processes++
		}
	}
	assert.Equal(t, [][]string{{
		fmt.Sprint(len(f.Of("X"))), fmt.Sprint(length), fmt.Sprint(len(f.Of("f"))), fmt.Sprint(len(f.Of("C"))),
		fmt.Sprint(len(f.Of("i"))), fmt.Sprint(processes),
	}}, perfetto(t, path, contents), path)
}

func TestPerfettoOpensServicesWithCounters(t *testing.T) {
	needsPerfetto(t)
	cfg := config(t)
	tr, me, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	require.NoError(t, tr.ConsumeTraces(t.Context(), service(1)))
	require.NoError(t, me.ConsumeMetrics(t.Context(), power(250)))
	require.NoError(t, stop())
	data, err := os.ReadFile(cfg.Path)
	require.NoError(t, err)
	agrees(t, cfg.Path, data)
	assert.Equal(t, [][]string{{"500", "250"}}, perfetto(t, cfg.Path,
		`SELECT c.ts - (SELECT min(ts) FROM slice) AS at, c.value AS watts
FROM counter c JOIN process_counter_track t ON c.track_id = t.id WHERE t.name = 'hw.power W'`))
	assert.Equal(t, [][]string{{"cudaLaunchKernel", "void gemm<float>(int)"}, {"POST /generate", "prefill"}},
		perfetto(t, cfg.Path,
			`SELECT a.name AS source, b.name AS target FROM flow f JOIN slice a ON f.slice_out = a.id JOIN slice b ON f.slice_in = b.id ORDER BY b.name DESC`))
}

func TestPerfettoOpensCompressedAndRotatedFiles(t *testing.T) {
	needsPerfetto(t)
	cfg := config(t, func(c *Config) {
		c.Compression = chrometrace.Gzip
		c.Rotation = configoptional.Some(Rotation{MaxMegabytes: 1, MaxFiles: 10})
	})
	tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
	root := recorded.Path(t, "kineto")
	for _, f := range []string{"hta/timeline_analysis/sampled_rank-0.json.gz", "hta/ns_resolution_trace/*.gz"} {
		m, err := filepath.Glob(filepath.Join(root, f))
		require.NoError(t, err)
		_, err = kinetoreceiver.ReadFile(t.Context(), m[0], kinetoreceiver.Options{Detail: kinetoreceiver.DetailKernels},
			tr.ConsumeTraces)
		require.NoError(t, err)
	}
	require.NoError(t, stop())
	complete := files(t, filepath.Dir(cfg.Path))
	assert.Greater(t, len(complete), 1)
	for _, name := range complete {
		path := filepath.Join(filepath.Dir(cfg.Path), name)
		packed, err := os.Open(path)
		require.NoError(t, err)
		z, err := gzip.NewReader(packed)
		require.NoError(t, err)
		data, err := io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, packed.Close())
		agrees(t, path, data)
	}
}

func TestPerfettoOpensRecordedTraces(t *testing.T) {
	needsPerfetto(t)
	root := recorded.Path(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		nsight := strings.HasSuffix(path, ".sqlite")
		if err != nil || d.IsDir() || !nsight && !strings.HasSuffix(path, ".json.gz") {
			return err
		}
		for _, detail := range []kinetoreceiver.Detail{kinetoreceiver.DetailAuto, kinetoreceiver.DetailKernels} {
			name, _ := filepath.Rel(root, path)
			t.Run(fmt.Sprint(name, "/", detail), func(t *testing.T) {
				cfg := config(t)
				tr, _, stop := start(t, cfg, exportertest.NewNopSettings(metadata.Type))
				var err error
				if nsight {
					_, err = nsysreceiver.ReadFile(t.Context(), path, nsysreceiver.Options{Detail: detail}, tr.ConsumeTraces)
				} else {
					_, err = kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: detail}, tr.ConsumeTraces)
				}
				require.NoError(t, stop())
				if errors.Is(err, kinetoreceiver.ErrNotTrace) {
					t.Skip("no trace")
				}
				require.NoError(t, err)
				data, err := os.ReadFile(cfg.Path)
				require.NoError(t, err)
				agrees(t, cfg.Path, data)
			})
		}
		return nil
	})
	require.NoError(t, err)
}
