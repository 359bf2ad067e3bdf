// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestJobsAreManyAndWrittenAsJSON(t *testing.T) {
	names := map[string]bool{}
	for _, j := range Jobs() {
		require.False(t, names[j.Name], j.Name)
		names[j.Name] = true
		p := j.Run()
		require.Len(t, p.Files, j.Ranks)
		require.True(t, json.Valid([]byte(p.Files[0])), j.Name)
		if j.Gain {
			assert.Positive(t, p.Loss, "the planted loss costs time: %s", j.Name)
		}
		if j.Want[0] == Healthy {
			assert.Less(t, p.Loss.Abs(), time.Millisecond, j.Name)
		}
	}
	assert.GreaterOrEqual(t, len(names), 60)
}

// The waits caused by ranks add up to the waits of ranks.
func TestWaitsAddUp(t *testing.T) {
	for _, l := range Layouts() {
		if l.Ranks > 8 {
			continue
		}
		w := l.Run()
		var waited, held time.Duration
		for i := range w.Waited {
			waited, held = waited+w.Waited[i], held+w.Held[i]
		}
		assert.Equal(t, waited, held, l.Name)
		assert.Positive(t, held, l.Name)
	}
}
