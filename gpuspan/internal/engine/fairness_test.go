// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
)

// deafBackend hangs at a point where a driver may hang when it is loaded.
type deafBackend struct {
	*enginetest.Backend
	in    string
	until chan struct{}
}

func (b deafBackend) ThreadInit() error {
	if b.in == "ThreadInit" {
		<-b.until
	}
	return nil
}

func (b deafBackend) Devices() ([]backend.Device, error) {
	if b.in == "Devices" {
		<-b.until
	}
	return b.Backend.Devices()
}

func TestNewDoesNotWaitForADriverThatHangs(t *testing.T) {
	for _, in := range []string{"ThreadInit", "Devices"} {
		b := deafBackend{enginetest.NewBackend(), in, make(chan struct{})}
		p, err := engine.New(b, func(c *section.Config) { c.OpenTimeout = 10 * time.Millisecond })
		require.ErrorContains(t, err, "the driver does not respond", in)
		s := p.Stream(3, "main")
		enginetest.Op.Start(context.Background(), s).End()
		require.False(t, s.DeviceTimed())
		require.NoError(t, p.Flush(context.Background()))
		require.NoError(t, p.Shutdown(context.Background()))
		close(b.until)
		require.Eventually(t, b.Closed.Load, time.Minute, time.Millisecond,
			"the thread that was left behind frees what it got")
		require.Empty(t, p.Devices())
	}
}

// The deadline may pass before, during or after the polling thread's query of the driver;
// nanoseconds decide.
func TestADriverThatAnswersTooLateIsClosedOnce(t *testing.T) {
	for range 200 {
		b := enginetest.NewBackend()
		p, err := engine.New(b, func(c *section.Config) { c.OpenTimeout = time.Nanosecond })
		if err != nil {
			require.ErrorContains(t, err, "the driver does not respond")
		}
		require.NoError(t, p.Shutdown(context.Background()))
		require.Eventually(t, b.Closed.Load, time.Minute, time.Millisecond)
		require.EqualValues(t, 1, b.Closes.Load())
		if err != nil {
			require.Empty(t, p.Devices())
		}
	}
}
