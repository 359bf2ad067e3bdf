// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
)

func TestMessagesOfAJobAreNotRepeatedForEachRank(t *testing.T) {
	b := NewBook()
	sent := make([]facts.Transfer, shownTransfers+3)
	for i, name := range []string{"f/r0.json", "f/r1.json", "f/alone.json"} {
		b.Profile(name, []facts.Report{{Transfers: sent}}, nil)
		b.profile(name).Rank = int64(i)
	}
	s := b.State([]jobs.Job{{
		Ranks:     []jobs.Rank{{Rank: 0, File: "r0.json"}, {Rank: 1, File: "r1.json"}},
		Transfers: []jobs.Transfer{{Recorded: 2}},
	}})
	for i, want := range []int{0, 0, shownTransfers} {
		assert.Len(t, s.Profiles[i].Devices[0].Transfers, want)
	}
	assert.Equal(t, 3, s.Profiles[2].Devices[0].MoreTransfers)
	assert.Zero(t, s.Profiles[0].Devices[0].MoreTransfers)
}
