// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func findingsOf(t *testing.T, dir string) (doc convert.Document) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "findings.json"))
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	require.NoError(t, err)
	schema, err := jsonschema.NewCompiler().Compile(filepath.FromSlash("../../docs/findings.schema.json"))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(value))
	require.NoError(t, json.Unmarshal(text, &doc))
	return doc
}

// findings.json has the job, the devices and the steps, as docs/findings.schema.json describes
// them.
func TestFindingsAreJSON(t *testing.T) {
	out := t.TempDir()
	files, err := filepath.Glob(recorded.Path(t, "kineto", "param", "dlrm_8ranks", "worker?.pt.trace.json.gz"))
	require.NoError(t, err)
	stdout, stderr, err := inProcess(t, append([]string{"convert", "--out", out}, files...)...)
	require.NoError(t, err, stderr)
	assert.Contains(t, stdout, "findings.json")
	doc := findingsOf(t, out)
	require.Len(t, doc.Jobs, 1)
	assert.Contains(t, stdout, doc.Jobs[0].Says)
	require.Len(t, doc.Profiles, 8)
	for _, p := range doc.Profiles {
		require.Len(t, p.Devices, 1)
		d := p.Devices[0]
		parts := d.Parts
		assert.EqualValues(t, d.Window, parts.Computing+parts.CommExposed+parts.CopyExposed+parts.Idle+parts.NotRecorded)
		for _, v := range d.Findings {
			assert.Contains(t, stdout, v.String())
		}
	}
}

// A file's finding on communication does not contradict the job's on a late rank.
func TestFilesRepeatWhatTheJobFound(t *testing.T) {
	i := 0
	for Layouts()[i].Ranks < 8 {
		i++
	}
	l := Layouts()[i]
	dir, out := t.TempDir(), t.TempDir()
	for rank, text := range l.Run().Files {
		writeFile(t, dir, "rank"+string(rune('0'+rank))+".json", text)
	}
	_, stderr, err := inProcess(t, "convert", "--out", out, dir)
	require.NoError(t, err, stderr)
	doc := findingsOf(t, out)
	require.Len(t, doc.Jobs, 1)
	require.NotEmpty(t, doc.Jobs[0].Late)
	late, waiting := doc.Jobs[0].Late[0].Rank, 0
	for rank, p := range doc.Profiles {
		for _, v := range p.Devices[0].Findings {
			if v.Kind == "late_rank" && int64(rank) != late {
				waiting++
				assert.Contains(t, v.Chain[0], "rank", v)
				assert.LessOrEqual(t, v.Gain, doc.Jobs[0].Ranks[rank].Waited)
			}
		}
	}
	assert.Positive(t, waiting)
}

func TestForbiddenFindingsFail(t *testing.T) {
	file := recorded.Path(t, "cases", "profiles", "graph_kernels_unrecorded.pt.trace.json")
	for condition, fails := range map[string]bool{
		"not_recorded": true, "not_recorded:50%": true, "loader,not_recorded:0.8": true,
		"not_recorded:0.9": false, "loader": false,
	} {
		out := t.TempDir()
		_, stderr, err := inProcess(t, "convert", "--fail-on", condition, "--out", out, file)
		if fails {
			require.ErrorIs(t, err, convert.ErrFound, condition)
			assert.Contains(t, stderr, "not_recorded of GPU 0 is 86.5 %", condition)
		} else {
			require.NoError(t, err, condition)
		}
		require.FileExists(t, filepath.Join(out, "findings.json"), "results are complete")
	}
	for condition, problem := range map[string]string{
		"slow": "unknown kind of finding", "loader:2": "must be from 0 to 1", "loader:x%": "must be from 0 to 1",
	} {
		_, _, err := inProcess(t, "convert", "--fail-on", condition, "--out", t.TempDir(), file)
		require.ErrorContains(t, err, problem)
	}
}
