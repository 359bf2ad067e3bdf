// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWaitingForTheEndIsLimited(t *testing.T) {
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		limit, needs, want time.Duration // limit 0: no deadline
	}{
		"in time":                         {limit: 5 * time.Second, needs: 4 * time.Second, want: 4 * time.Second},
		"a moment late":                   {limit: 5 * time.Second, needs: 6*time.Second - 1, want: 6*time.Second - 1},
		"too late":                        {limit: 5 * time.Second, needs: 6*time.Second + 1, want: 6 * time.Second},
		"a context that has ended":        {limit: -1, needs: time.Second - 1, want: time.Second - 1},
		"in the time of components":       {needs: 31*time.Second - 1, want: 31*time.Second - 1},
		"later than that":                 {needs: 31*time.Second + 1, want: 31 * time.Second},
		"a deadline later than that time": {limit: time.Hour, needs: 59 * time.Minute, want: 59 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.limit != 0 {
					limited, cancel := context.WithTimeout(ctx, tt.limit)
					defer cancel()
					ctx = limited
				}
				start := time.Now()
				err := Within(ctx, func() error {
					time.Sleep(tt.needs)
					return failed
				})
				assert.Equal(t, tt.want, time.Since(start))
				if tt.want == tt.needs {
					assert.Equal(t, failed, err)
					return
				}
				assert.ErrorIs(t, err, ErrRunning)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(time.Hour)
			})
		})
	}
}
