// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// That nothing is logged of a hang must not keep the step's span from the trace.
func TestAStepOfAHungDeviceEndsItsSpanWhateverIsLogged(t *testing.T) {
	set := DefaultSettings()
	set.HangLimit, set.HangDeadline = 0, 10*time.Millisecond
	f := newBench(t, newScripted(), WithSettings(set))
	s := f.p.Stream(3, "main")
	f.b.query.Store(int32(StatusNotReady))
	for _, step := range f.p.Loop("train", s, TotalSteps(1)).Steps(context.Background()) {
		step.SetItems(7)
	}
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, f.p.poller.call(context.Background(), f.p.poller.tidy))
	require.Len(t, f.spans.Ended(), 1)
	status, source := f.status(0)
	assert.Equal(t, "timeout", status)
	assert.Equal(t, "host", source)
	require.NoError(t, f.p.poller.call(context.Background(), f.p.poller.tidy))
	assert.Len(t, f.spans.Ended(), 1, "once")

	f.b.query.Store(int32(StatusOK)) // the device comes back
	f.flush(t)
	assert.Len(t, f.spans.Ended(), 1)
}
