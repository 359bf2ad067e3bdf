// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func convertDumps(t *testing.T, args ...string) (out, problems string, err error) {
	t.Helper()
	cmd := newConvertCommand()
	var o, p bytes.Buffer
	cmd.SetOut(&o)
	cmd.SetErr(&p)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.Execute()
	return o.String(), p.String(), err
}

func TestConvertNamesTheRankThatHangs(t *testing.T) {
	folder := recorded.Path(t, "flight-recorder-nccl", "missing-v2.10")
	results := t.TempDir()
	out, problems, err := convertDumps(t, folder, "--out", results)
	require.NoError(t, err)
	assert.Empty(t, problems)
	rank := 4
	assert.Equal(t, &finding.Hang{Rank: &rank, Group: "TP_GROUP_1", Sequence: 11, Cause: "missing"},
		findingsOf(t, results).Collectives[0].Findings[0].Hang)
	out, _, _ = strings.Cut(out, "\n\n")
	assert.Equal(t, folder+`: dumps of 8 of 8 ranks
  hung_rank, rank 4: rank 4 has not entered all_reduce 11 of TP_GROUP_1 -> ranks 5 to 7 wait there since 2026-09-21T14:30:00Z -> 4 other ranks wait for them (certainty high)
  newest operation of rank 4: all_reduce 5 of default_pg, finished, at train.py:240 clip_grad_norm
  try: see what the rank does instead (py-spy dump --pid): a data loader, a save, an exception, or a branch that only it took
  1 other file not read (name profiles among them one by one)`, out)
}

func TestConvertTakesDumpsOneByOne(t *testing.T) {
	files, err := filepath.Glob(recorded.Path(t, "flight-recorder-gloo", "dead-w4", "json_rank_*"))
	require.NoError(t, err)
	out, problems, err := convertDumps(t, files...)
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.Contains(t, out, "the job: dumps of 3 of 4 ranks\n  hung_rank, rank 2: rank 2 left no dump and did not finish all_reduce 10 of default_pg -> ")
	assert.Contains(t, out, "  no dump of rank 2\n")
}

func TestConvertReportsDumpsThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "trace_rank_0"),
		[]byte(`{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1, 2, 3]"}},"entries":[]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "trace_rank_1"), []byte("\x80\x02cos\nsystem\n."), 0o600))
	out, problems, err := convertDumps(t, folder)
	require.ErrorIs(t, err, errReported)
	assert.Contains(t, problems, `trace_rank_1": byte 3: pickle opcode 0x63 is refused`)
	assert.Contains(t, out, "dumps of 1 of 4 ranks\n  not judged: fewer than half of the ranks left a dump\n  no dump of ranks 1 to 3\n")
}

func TestConvertSaysWhyNoDumpCanBeRead(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "trace_rank_1"), []byte("\x80\x02cos\nsystem\n."), 0o600))
	out, problems, err := convertDumps(t, folder)
	require.ErrorIs(t, err, errReported)
	assert.Contains(t, problems, `trace_rank_1": byte 3: pickle opcode 0x63 is refused`)
	assert.Empty(t, out)
}

func TestConvertConvertsProfilesBesideDumps(t *testing.T) {
	dump := recorded.Path(t, "flight-recorder-nccl", "healthy-v2.10", "nccl_trace_rank_0")
	_, _, err := convertDumps(t, dump, filepath.Join(t.TempDir(), "profile.json"))
	require.ErrorContains(t, err, "no output directory")
}
