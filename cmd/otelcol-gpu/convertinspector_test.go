// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/convert"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func TestConvertNamesTheRankThatArrivesLast(t *testing.T) {
	folder := recorded.Path(t, "nccl-inspector", "late-2.30")
	out := t.TempDir()
	stdout, problems, err := convertDumps(t, folder, "--out", out, "--fail-on", "late_rank")
	require.ErrorIs(t, err, convert.ErrFound)
	assert.Contains(t, problems, "late_rank of rank 2")
	assert.Contains(t, stdout, folder+": 8 files of NCCL Inspector, 1312 operations\n")
	assert.Contains(t, stdout, "  late_rank, rank 2: rank 2 arrives last at collectives of TP Group 0 (0xf4b7ac8e16f005) -> each of the others waits 30.08ms for it (certainty high)\n"+
		"  its kernels are the shortest in 20 of 40 parts of 40 collectives (chance: 10.0); process 41002 on node00, GPU 2 of 10.0.0.10\n")
	doc := findingsOf(t, out)
	require.Len(t, doc.Collectives, 1)
	assert.Equal(t, "rank 2", doc.Collectives[0].Findings[0].Subject)
}

func TestConvertNamesTheSlowCommunicator(t *testing.T) {
	stdout, _, err := convertDumps(t, recorded.Path(t, "nccl-inspector", "slowlink-2.28"))
	require.NoError(t, err)
	assert.Contains(t, stdout, "slow_group, communicator 0xffbe04d1f1d3f of 4 ranks: ")
	assert.NotContains(t, stdout, "late_rank")
}

// A few files of a job, a broken line and a broken ras.json are said to be what they are.
func TestConvertReportsWhatItCannotReadOfInspector(t *testing.T) {
	from := recorded.Path(t, "nccl-inspector", "healthy-2.30")
	folder := t.TempDir()
	text, err := os.ReadFile(filepath.Join(from, "node00-pid41000.log"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.log"), append(text, "rubbish\n"...), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "ras.json"), []byte("rubbish"), 0o600))
	stdout, problems, err := convertDumps(t, folder)
	require.ErrorIs(t, err, errReported)
	assert.Contains(t, problems, "not a status of NCCL's RAS subsystem in JSON")
	assert.Contains(t, problems, "a.log, line 125: not a line of NCCL Inspector")
	assert.Contains(t, stdout, "not judged: no collective was recorded by 80 % of the ranks")
	stdout, _, err = convertDumps(t, filepath.Join(from, "node00-pid41000.log"))
	require.NoError(t, err)
	assert.Contains(t, stdout, "the job: 1 file of NCCL Inspector, 124 operations\n")
}
