// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestRangesThatSaveCheckpointsAreKnownByTheirWords(t *testing.T) {
	for name, want := range map[string]bool{
		"save_checkpoint": true, "saving checkpoint": true, "dcp.save": true, "write ckpt": true,
		"torch/serialization.py(850): save": true, "torch/utils/checkpoint.py(489): checkpoint": false, "checkpoint": false,
		"load_checkpoint": false, "save_image": false,
	} {
		assert.Equal(t, want, timeline.SavesCheckpoint(name), name)
	}
}

// A range that saves a checkpoint first copies the state to the host: work after that wait is part
// of it, too.
func TestWorkAfterTheCopiesOfACheckpointIsPartOfIt(t *testing.T) {
	const wait, save, other = 1, 2, 3
	names := map[uint32]string{wait: "cudaStreamSynchronize", save: "save_checkpoint", other: "evaluate"}
	for in, kind := range map[uint32]string{
		save: semconv.GPUFindingKindCheckpoint, other: semconv.GPUFindingKindHostWork,
	} {
		f := aContext()
		f.Name = func(id uint32) string { return names[id] }
		d := facts.NewDevice(&timeline.Splitter{})
		d.Totals.Idle(timeline.Share{Claim: timeline.Claim{
			From: 0, To: 500, Class: timeline.Idle, Cause: timeline.CauseAfterWait, Name: wait, In: in,
		}})
		j := &judge{subject: "GPU 0", f: f, length: 1000, account: &d.Totals.Spending}
		j.checkpoint()
		j.afterWaits()
		require.Len(t, j.list, 1)
		assert.Equal(t, kind, j.list[0].Kind)
		assert.Equal(t, 500*time.Nanosecond, j.list[0].Gain)
		if in == save {
			assert.Contains(t, j.list[0].Evidence, "save_checkpoint")
		}
	}
}
