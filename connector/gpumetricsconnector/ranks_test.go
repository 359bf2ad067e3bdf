// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// replay takes the requests of a file when they arrived, and returns in how many steps each rank
// was named, and the steps that were not compared.
func replay(t *testing.T, name string) (named map[int64]int, alone map[string]int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(recorded.Path(t, "cases", "services"), name))
	require.NoError(t, err)
	a := newTest(t, func(c *Config) { c.Stragglers.Get().everySteps = 0 })
	a.jobs.spans = true
	named, alone = map[int64]int{}, map[string]int64{}
	count := func(now int64, final bool) {
		a.output(now, final)
		for _, f := range a.findings() {
			named[f.Rank]++
		}
	}
	var now int64
	for line := range bytes.Lines(b) {
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		require.NoError(t, err)
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					now = max(now, int64(s.EndTimestamp()))
				}
			}
		}
		a.take(td, now)
		count(now, false)
	}
	count(now+int64(time.Minute), true)
	for why, n := range a.stats.uncompared {
		if n > 0 {
			alone[aloneTexts[why].label] = n
		}
	}
	return named, alone
}

func TestLateRanksOfJobs(t *testing.T) {
	for name, want := range map[string]struct {
		named map[int64]int
		alone map[string]int64
	}{
		"ranks-one-run.otlp.jsonl":      {map[int64]int{2: 60}, nil},
		"ranks-short-epochs.otlp.jsonl": {map[int64]int{2: 100}, nil},
		"ranks-equal-ids.otlp.jsonl":    {map[int64]int{1: 60}, nil},
		// The late rank does not report, so nobody else is the cause.
		"ranks-silent-straggler.otlp.jsonl": {map[int64]int{}, map[string]int64{"absent_rank": 150}},
		"ranks-two-runs-one-job.otlp.jsonl": {map[int64]int{}, map[string]int64{"shared_job": 200}},
	} {
		t.Run(name, func(t *testing.T) {
			named, alone := replay(t, name)
			assert.Equal(t, want.named, named)
			if want.alone == nil {
				want.alone = map[string]int64{}
			}
			assert.Equal(t, want.alone, alone)
		})
	}
}
