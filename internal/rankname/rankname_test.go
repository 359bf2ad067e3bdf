// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankname

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRanksInNames(t *testing.T) {
	for name, want := range map[string]int64{
		"a/rank0.pt.trace.json.gz": 0, "train_rank12.sqlite": 12, "RANK-3.json": 3, "rank=7": 7,
		"frank3.json": -1, "rank.json": -1, "worker5.json": -1, "rank1/profile.json": -1,
	} {
		rank, ok := Of(name)
		assert.Equal(t, want >= 0, ok, name)
		if ok {
			assert.Equal(t, want, rank, name)
		}
	}
}
