// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/sinktest"
)

// A queue that is full for minutes accepts and rejects in turn, which is one outage.
func TestAnOutageIsLoggedAtItsBeginningAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		attempts := 0
		core, logs := observer.New(zap.InfoLevel)
		r := newRig(t)
		r.logger = zap.New(core)
		r.joinTo(&sinktest.Sink{Reject: func() error {
			if attempts++; full.Load() && attempts%3 > 0 {
				return sinktest.ErrRejected
			}
			return nil
		}})
		r.run(r.device(nominal), steady(time.Now(), 300))
		minute := func(rejects bool) {
			full.Store(rejects)
			for range 60 {
				time.Sleep(time.Second)
				r.send(1)
			}
		}
		for _, rejects := range []bool{false, true, true, false, false, true} {
			minute(rejects)
		}
		full.Store(false)
		time.Sleep(time.Minute)
		assert.Equal(t, 2, logs.FilterMessageSnippet("rejects spans").Len())
		assert.Equal(t, 1, logs.FilterMessageSnippet("accepts spans again").Len())
		r.close()
	})
}

// A shutdown with a storage waits only while the next component accepts, and logs what stays.
func TestAShutdownLogsTheSpansThatStayInTheStorage(t *testing.T) {
	for rejects, wait := range map[bool]time.Duration{true: drainPatience, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			r := newRig(t).kept(new(sinktest.Storage))
			r.logger = zap.New(core)
			r.joinTo(&sinktest.Sink{Reject: func() error {
				if rejects {
					return sinktest.ErrRejected
				}
				return nil
			}}, stored)
			r.run(r.device(nominal), steady(time.Now(), 300))
			time.Sleep(time.Second)
			r.send(5)
			time.Sleep(time.Minute)
			start := time.Now()
			require.NoError(t, r.proc.Shutdown(t.Context()))
			assert.Equal(t, wait, time.Since(start))
			assert.Zero(t, logs.FilterMessageSnippet("are lost").Len())
			var stay []any
			for _, e := range logs.FilterMessageSnippet("spans stay in the storage").All() {
				stay = append(stay, e.ContextMap()["gpu_spans"])
			}
			if rejects {
				assert.Equal(t, []any{int64(15)}, stay, "the others are not of a GPU")
			} else {
				assert.Empty(t, stay)
			}
			r.close()
		})
	}
}
