// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func TestFindingsSayWhoWaitsForWhom(t *testing.T) {
	for folder, want := range map[string]struct {
		sure        finding.Certainty
		chain, fact string
	}{
		"flight-recorder-nccl/missing-v2.10": {
			finding.High, "rank 4 has not entered all_reduce 11 of TP_GROUP_1 -> " +
				"ranks 5 to 7 wait there since 2026-09-21T14:30:00Z -> 4 other ranks wait for them",
			"newest operation of rank 4: all_reduce 5 of default_pg, finished, at train.py:240 clip_grad_norm",
		},
		"flight-recorder-nccl/dead-v2.10": {finding.Medium, "rank 1 left no dump and did not finish all_reduce 11 of TP_GROUP_0 -> " +
			"ranks 0, 2 and 3 wait there since 2026-09-21T14:30:00Z -> 4 other ranks wait for them", ""},
		"flight-recorder-nccl/mismatch-dtype-v2.10": {finding.High, "rank 7 passes element type Float instead of BFloat16 to all_reduce 11 of TP_GROUP_1 -> " +
			"ranks 4 to 6 wait there since 2026-09-21T14:30:00Z", "newest operation of rank 7: all_reduce 11 of TP_GROUP_1, not finished, at train.py:"},
		"flight-recorder-nccl/stalled-v2.10": {finding.High, "rank 7 entered all_reduce 11 of TP_GROUP_1 and its device has not begun it -> " +
			"ranks 4 to 6 wait there since 2026-09-21T14:30:00Z", "not finished"},
		"flight-recorder-gloo/p2p-w4": {finding.Low, "ranks 2 and 3 have not entered all_reduce 10 of default_pg -> " +
			"ranks 0 and 1 wait there since 2026-11-28T", "Gloo does not record send and recv"},
	} {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			prefix := "fr_rank_"
			if strings.Contains(folder, "nccl") {
				prefix = "nccl_trace_rank_"
			}
			got := Analyze(readFolder(t, recorded.Path(t, folder), prefix))
			require.Len(t, got.Hangs, 1)
			f := got.Hangs[0].Finding()
			assert.Contains(t, strings.Join(f.Chain, " -> "), want.chain)
			assert.Contains(t, f.Evidence, want.fact)
			assert.Equal(t, want.sure, f.Certainty)
			assert.NotEmpty(t, f.Remedy)
		})
	}
}

func TestRanksForPeople(t *testing.T) {
	assert.Equal(t, "rank 3", Ranks([]int{3}))
	assert.Equal(t, "ranks 1 and 2", Ranks([]int{1, 2}))
	assert.Equal(t, "ranks 0 to 6 and 8", Ranks([]int{0, 1, 2, 3, 4, 5, 6, 8}))
	assert.Equal(t, "ranks 1 to 3", Ranks([]int{1, 2, 3}))
	assert.Equal(t, "ranks 1, 2, 4 and 6 to 9", Ranks([]int{1, 2, 4, 6, 7, 8, 9}))
}
