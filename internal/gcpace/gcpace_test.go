// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gcpace

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPercentFillsTheBudgetAndThenIsTheLeast(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, most}, {1 * mb, most}, {20 * mb, 400}, {50 * mb, 100}, {79 * mb, 26}, {81 * mb, 25}, {100 * mb, 25}, {500 * mb, 25},
	} {
		assert.Equal(t, c.want, percent(c.live, 100*mb, 25), "%d MB live", c.live/mb)
	}
}

// The percentage follows what is live: it falls when more is live, rises when that is dropped, and
// is restored.
func TestPercentageFollowsTheLiveHeap(t *testing.T) {
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	now := func() uint64 {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	until := func(reached func(percent uint64) bool) {
		require.Eventually(t, func() bool { // cleanups run in another goroutine
			runtime.GC()
			return reached(now())
		}, time.Minute, time.Millisecond)
	}
	runtime.GC()
	stop := Start(64<<20, 25)
	require.Greater(t, now(), uint64(100))
	large := make([]byte, 100<<20)
	until(func(p uint64) bool { return p == 25 })
	runtime.KeepAlive(large) // and is not used below
	until(func(p uint64) bool { return p > 100 })
	stop()
	require.EqualValues(t, 100, now())
	for range 5 {
		runtime.GC()
		require.EqualValues(t, 100, now(), "it is stopped")
	}
}
