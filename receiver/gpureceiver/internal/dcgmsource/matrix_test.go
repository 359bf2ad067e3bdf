// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
)

type host struct {
	component.Host
	*devicesamples.Store
}

func (host) Start(context.Context, component.Host) error { return nil }
func (host) Shutdown(context.Context) error              { return nil }

var samplesID = component.MustNewID("gpu_samples")

func (h host) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{samplesID: h}
}

// control configures the stub.
func control(t *testing.T, lines string) {
	t.Helper()
	path := os.Getenv("OTELGPU_DCGM_STUB")
	if path == "" {
		t.Skip("needs gcc to build the stub of DCGM")
	}
	require.NoError(t, os.WriteFile(path+".new", []byte("host "+t.Name()+"\ngpus 2\n"+lines), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// power returns the times of the power samples of the first board from t on.
func (h host) power(from time.Time) []int64 {
	v := h.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-00000000-0000-0000-0000-000000000000")
	if !ok {
		return nil
	}
	return d.Times(devicesamples.Power, from.UnixNano(), time.Now().UnixNano(), nil)
}

// TestFaultMatrix runs the whole receiver, with its default intervals, through faults of a host
// engine, and prints how long samples were missing after each fault ended.
func TestFaultMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for _, tc := range []struct {
		name   string
		before string // the machine when the receiver starts
		fault  string // then, for
		length time.Duration
		after  string // then
		lost   bool   // samples during the fault are lost
	}{
		{"late host engine", "down 1\nrefused 300\n", "down 1\nrefused 300\n", time.Second, "", true},
		{"host engine hangs", "", "hang 1\n", 5 * time.Second, "", false},
		{"host engine restarted", "", "down 1\n", time.Second, "epoch 2\n", true},
		{"driver detached and attached", "", "detached 1\n", 3 * time.Second, "", true},
		{"board lost and reset", "", "lost 1\n", 2 * time.Second, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			control(t, tc.before)
			f := gpureceiver.NewFactory()
			cfg := f.CreateDefaultConfig().(*gpureceiver.Config)
			cfg.Source, cfg.Samples, cfg.CollectionInterval = "dcgm", &samplesID, time.Second
			r, err := f.CreateMetrics(context.Background(), receivertest.NewNopSettings(f.Type()), cfg, consumertest.NewNop())
			require.NoError(t, err)
			h := host{componenttest.NewNopHost(), devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)}
			began := time.Now()
			require.NoError(t, r.Start(context.Background(), h))
			if tc.before == "" {
				require.Eventually(t, func() bool { return len(h.power(began)) > 0 }, 3*time.Minute, 10*time.Millisecond)
			}
			faulty := time.Now()
			control(t, tc.fault)
			time.Sleep(tc.length)
			control(t, tc.after)
			healed := time.Now()
			require.Eventually(t, func() bool { return len(h.power(healed)) > 0 }, 3*time.Minute, 10*time.Millisecond)
			took := time.Since(healed)
			time.Sleep(1500 * time.Millisecond)
			times := h.power(faulty)
			gap := int64(0)
			for i := 1; i < len(times); i++ {
				gap = max(gap, times[i]-times[i-1])
			}
			fmt.Printf("| %s | %s | %.1f s | %.1f s |\n", tc.name, tc.length, took.Seconds(), float64(gap)*1e-9)
			if !tc.lost {
				assert.LessOrEqual(t, gap, int64(100*time.Millisecond), "no sample is lost")
			}
			require.NoError(t, r.Shutdown(context.Background()))
		})
	}
	t.Run("shutdown while the host engine hangs", func(t *testing.T) {
		control(t, "")
		f := gpureceiver.NewFactory()
		cfg := f.CreateDefaultConfig().(*gpureceiver.Config)
		cfg.Source, cfg.CallTimeout = "dcgm", 500*time.Millisecond
		r, err := f.CreateMetrics(context.Background(), receivertest.NewNopSettings(f.Type()), cfg, consumertest.NewNop())
		require.NoError(t, err)
		require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
		time.Sleep(200 * time.Millisecond)
		control(t, "hang 1\n")
		time.Sleep(1200 * time.Millisecond)
		began := time.Now()
		require.NoError(t, r.Shutdown(context.Background()))
		took := time.Since(began)
		fmt.Printf("| shutdown while it hangs, call_timeout 500ms | | %.1f s | |\n", took.Seconds())
		assert.Less(t, took, 30*time.Second, "a call hangs for a minute")
		control(t, "")
		time.Sleep(300 * time.Millisecond) // the call returns and releases the connection
	})
}
