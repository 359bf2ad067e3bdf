// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stacks_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/stacks"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

// The idle time of a file equals the result of an independent program to the nanosecond: the window
// minus the union of the activities. If no two activities overlap, GPU time is that union.
func TestTimesOfRecordedProfiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recorded.Path(t, "kineto", "tracelens", "h100"), "*.ref.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, ref := range files {
		b, err := os.ReadFile(ref)
		require.NoError(t, err)
		var want struct {
			Devices map[string]struct {
				Busy float64 `json:"busy_ns"`
				Idle float64 `json:"idle_ns"`
			}
		}
		require.NoError(t, json.Unmarshal(b, &want))
		total := stackprofile.NewTotal()
		var seen *stacks.Recorder
		_, err = kinetoreceiver.ReadFile(t.Context(), ref[:len(ref)-len(".ref.json")], kinetoreceiver.Options{
			Observe: func(in *link.Input) link.Observer {
				seen = stacks.New(in)
				return seen
			},
		}, func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(t, err)
		seen.AddTo(total)
		got := stackprofile.Totals(total.Profiles())
		require.Len(t, want.Devices, 1)
		for _, d := range want.Devices {
			assert.Equal(t, d.Busy, got[stackprofile.Time], ref)
			assert.Equal(t, d.Idle, got[stackprofile.IdleTime], ref)
		}
	}
}
