// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
)

func (k *fresh) simulate(style Style, seed uint64, sick bool) (ps []*session) {
	for i := range max(1, k.ranks) {
		ps = append(ps, newSession(style, seedOf(seed, k.name), sick, i, max(1, k.ranks)))
	}
	k.run(ps)
	if k.edit != nil {
		k.edit(ps[0])
	}
	return ps
}

// wanted returns the accepted findings for a style.
func (k *fresh) wanted(style Style) []string {
	if list := k.other[style]; list != nil {
		return list
	}
	return k.want
}

// judge returns what is wrong with the first finding, or "".
func (k *fresh) judge(t *testing.T, style Style, seed uint64) string {
	t.Helper()
	ps := k.simulate(style, seed, true)
	if k.want[0] != "healthy" && k.want[0] != "none" && !k.alone {
		window, part := k.simulate(style, seed, false)[0].busy()
		sick, _ := ps[0].busy()
		assert.Greater(t, part, 0.8, "the twin has another loss: %s", k.name)
		assert.Greater(t, float64(sick-window)/float64(sick), 0.1, "the cause costs little: %s", k.name)
	}
	if k.job {
		return k.judgeJob(t, ps)
	}
	devices, partial := read(t, ps[0], nil)
	if len(devices) != 1 || len(devices[0].Findings) == 0 {
		return fmt.Sprintf("%d devices", len(devices))
	}
	if partial != ps[0].truncated {
		return fmt.Sprintf("partial: %v", partial)
	}
	f := devices[0].Findings[0]
	said := strings.ToLower(fmt.Sprint(f.String(), f.Where))
	if !slices.Contains(k.wanted(style), f.Kind) || style != Unstacked && !strings.Contains(said, k.who) {
		return fmt.Sprintf("wanted %v %s: %s", k.wanted(style), k.who, f)
	}
	return ""
}

func read(t *testing.T, p *session, observe func(*link.Input) link.Observer) (devices []facts.Report, partial bool) {
	t.Helper()
	path, err := p.write(t.Context(), t.TempDir(), fmt.Sprintf("rank%d", p.rank))
	require.NoError(t, err)
	none := func(context.Context, ptrace.Traces) error { return nil }
	if p.style == Nsight {
		st, err := nsysreceiver.ReadFile(t.Context(), path, nsysreceiver.Options{Detail: kinetoreceiver.DetailSteps}, none)
		require.NoError(t, err)
		return st.Devices, false
	}
	st, err := kinetoreceiver.ReadFile(t.Context(), path, kinetoreceiver.Options{Detail: kinetoreceiver.DetailSteps, Observe: observe, Partial: true}, none)
	require.NoError(t, err)
	return st.Devices, st.Partial
}

func (k *fresh) judgeJob(t *testing.T, ps []*session) string {
	t.Helper()
	var all jobs.Profiles
	var merged string
	var devices []facts.Report
	if k.merged {
		var lines []string
		for _, p := range ps {
			lines = append(lines, p.lines(fmt.Sprintf("TP%02d", p.rank))...)
		}
		path := filepath.Join(t.TempDir(), "merged-1759.trace.json")
		merged = path
		require.NoError(t, os.WriteFile(path, []byte(ps[0].head()+strings.Join(lines, ",\n")+"\n]}\n"), 0o600))
		o := kinetoreceiver.Options{
			Detail:  kinetoreceiver.DetailSteps,
			Observe: func(in *link.Input) link.Observer { return all.Observe(path, in) },
		}
		st, err := kinetoreceiver.ReadFile(t.Context(), path, o, func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(t, err)
		devices = st.Devices
		all.Judged(path, devices)
	} else {
		for _, p := range ps {
			file := fmt.Sprintf("rank%d.pt.trace.json", p.rank)
			devices, _ := read(t, p, func(in *link.Input) link.Observer { return all.Observe(file, in) })
			all.Judged(file, devices)
		}
	}
	found := all.Jobs()
	if len(found) != 1 {
		return fmt.Sprintf("%d jobs; %s", len(found), all.NotCompared())
	}
	j := &found[0]
	switch {
	case k.late < 0 && len(j.Late) == 0:
		return ""
	case k.late >= 0 && len(j.Late) > 0 && j.Late[0].Rank == int64(k.late):
		if jobs.Revise(found, merged, devices); k.merged {
			assert.Contains(t, fmt.Sprint(devices[0].Findings), fmt.Sprintf("rank %d of %d is late", k.late, len(devices)))
		}
		return ""
	case len(j.Late) > 0:
		return fmt.Sprintf("rank %d is called late instead of %d", j.Late[0].Rank, k.late)
	}
	return fmt.Sprintf("no late rank instead of %d; absent %d %s; groups %d", k.late, j.Absent, j.AbsentOrLink, len(j.SlowGroups))
}

// One recording of each kind; with OTELGPU_ALL_JOBS each kind in all styles, several times. See
// TestFirstFindingsOfHeldOutJobs for -short.
func TestFirstFindingsOfFreshKinds(t *testing.T) {
	all := os.Getenv("OTELGPU_ALL_JOBS") != ""
	if testing.Short() && !all {
		t.Skip("one goroutine: the race detector only makes it slow")
	}
	kinds := slices.Concat(freshKinds(), graphKinds(), programKinds())
	for i := range kinds {
		k := &kinds[i]
		styles := slices.DeleteFunc(slices.Clone(k.styles), func(s Style) bool { return s == Nsight && !sqlitetest.Available() })
		seeds := uint64(repeats)
		if len(styles) > 0 && !all {
			styles, seeds = styles[i%len(styles):][:1], 1
		}
		for _, style := range styles {
			for n := range seeds {
				assert.Empty(t, k.judge(t, style, freshSeed+n), "%s, %s, %d", k.name, style, n)
			}
		}
	}
}

// freshSeed differs from the seed of the first contact, 4400.
const freshSeed = 5500
