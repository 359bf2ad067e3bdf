// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"context"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

// judge returns what is wrong with the first finding of a composed job, or "".
func (c *composed) judge(t *testing.T) string {
	t.Helper()
	path, err := c.write(t.Context(), t.TempDir())
	require.NoError(t, err)
	none := func(context.Context, ptrace.Traces) error { return nil }
	var devices []facts.Report
	if c.format.style == Nsight {
		st, err := nsysreceiver.ReadFile(t.Context(), path, nsysreceiver.Options{Detail: kinetoreceiver.DetailSteps}, none)
		require.NoError(t, err)
		devices = st.Devices
	} else {
		st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailSteps}, none)
		require.NoError(t, err)
		devices = st.Devices
	}
	require.Len(t, devices, 1)
	require.NotEmpty(t, devices[0].Findings)
	if slices.Contains(c.wanted(), devices[0].Findings[0].Kind) {
		return ""
	}
	return devices[0].Findings[0].String()
}

// wanted returns the finding of the cause whose removal saves most, and the other's within a tenth.
func (c *composed) wanted() []string {
	if c.cause == nil {
		return []string{"healthy", "not_judged"}
	}
	want := c.cause.want(c.format)
	if c.second != nil {
		both := c.simulate(true, true).window()
		a, b := both-c.simulate(false, true).window(), both-c.simulate(true, false).window()
		part := 0.9
		if slices.Contains(want, "launch_bound") {
			part = 0.3 // recording costs the host a part of it
		}
		if b > part*a {
			want = slices.Concat(want, c.second.want(c.format))
		}
	}
	return want
}

// composedJobs is the number of jobs of the development set.
const composedJobs = 300

// A sample of the development set; with OTELGPU_ALL_JOBS all of it. See
// TestFirstFindingsOfHeldOutJobs for -short.
func TestFirstFindingsOfComposedJobs(t *testing.T) {
	n, right, judged := uint64(30), 0, 0
	if os.Getenv("OTELGPU_ALL_JOBS") != "" {
		n = composedJobs
	} else if testing.Short() {
		t.Skip("one goroutine: the race detector only makes it slow")
	}
	for seed := range n {
		c := compose(seed)
		if c.format.style == Nsight && !sqlitetest.Available() {
			continue
		}
		judged++
		said := c.judge(t)
		if said == "" {
			right++
			continue
		}
		t.Logf("%d: %s: wanted %v: %s", seed, c, c.wanted(), said)
	}
	assert.GreaterOrEqual(t, float64(right)/float64(judged), aim)
}
