// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rankfolders

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheSimulationImportsNothingOfTheAnalysis(t *testing.T) {
	for _, name := range []string{"model_test.go", "files_test.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			assert.NotContains(t, i.Path.Value, "otelgpu", name)
		}
	}
}

// analyzed returns what is concluded from the profiles of ranks.
func (j *job) analyzed(t *testing.T, out *run, ranks []int) jobs.Job {
	t.Helper()
	dir := t.TempDir()
	files, err := j.write(dir, out, ranks)
	require.NoError(t, err)
	var all jobs.Profiles
	for _, file := range files {
		o := kinetoreceiver.Options{
			Detail:  kinetoreceiver.DetailSteps,
			Observe: func(in *link.Input) link.Observer { return all.Observe(file, in) },
		}
		st, err := kinetoreceiver.ReadFile(t.Context(), file, o, func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(t, err)
		all.Judged(file, st.Devices)
	}
	require.NoError(t, os.RemoveAll(dir))
	found := all.Jobs()
	require.Len(t, found, 1, filepath.Base(dir))
	return found[0]
}

// statement is what a job's result says about the cause.
func statement(j *jobs.Job) (says string, rank int64) {
	switch {
	case j.Absent > 0 && j.AbsentOrLink != "":
		return "absent or link", -1
	case j.Absent > 0:
		return "absent", -1
	case len(j.SlowGroups) > 0 && len(j.Late) == 0:
		return "group", -1
	case len(j.Late) > 0:
		return "late", j.Late[0].Rank
	}
	return "none", -1
}

// score counts statements.
type score struct{ right, wrong, missed, healthy, alarms int }

func (s score) String() string {
	percent := func(a, b int) string {
		if b == 0 {
			return "    -"
		}
		return fmt.Sprintf("%5.1f", 100*float64(a)/float64(b))
	}
	return fmt.Sprintf("precision %s recall %s false alarms %s (%d faulty, %d healthy; right %d wrong %d undecided %d)",
		percent(s.right, s.right+s.wrong+s.alarms), percent(s.right, s.right+s.wrong+s.missed), percent(s.alarms, s.healthy),
		s.right+s.wrong+s.missed, s.healthy, s.right, s.wrong+s.alarms, s.missed)
}

func (s *score) add(healthy, right, quiet bool) {
	switch {
	case healthy:
		s.healthy++
		if !right {
			s.alarms++
		}
	case right:
		s.right++
	case quiet:
		s.missed++
	default:
		s.wrong++
	}
}

// present returns the ranks that have a profile.
func (j *job) present(absence string) (list []int) {
	gone := -1
	switch absence {
	case "without an innocent rank":
		gone = (j.culprit + 1) % j.ranks
	case "without the late rank":
		gone = j.culprit
	}
	for r := range j.ranks {
		if r != gone {
			list = append(list, r)
		}
	}
	return list
}

// firstSeed is the first job's. Rules are changed by the results of other jobs: OTELGPU_RANK_SEED.
func firstSeed() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv("OTELGPU_RANK_SEED"), 10, 64); err == nil {
		return seed
	}
	return 70_000
}

// planted returns a job and its run; nil if its fault costs less than 1.5 % of a step.
func planted(seed uint64) (*job, *run) {
	j := newJob(seed)
	j.draw()
	out := j.run(true)
	if j.fault != "none" {
		if healthy := j.run(false); out.length-healthy.length < 0.015*healthy.length {
			return j, nil
		}
	}
	return j, out
}

// Faults that cost less than 1.5 % of a step are not counted. With OTELGPU_RANK_FOLDERS, that many
// jobs are simulated.
func TestLateRanksOfFolders(t *testing.T) {
	n := 50
	if text := os.Getenv("OTELGPU_RANK_FOLDERS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	} else if testing.Short() {
		t.Skip("one goroutine: the race detector only makes it slow")
	}
	byJitter := map[string]*score{}
	of := func(key string) *score {
		if byJitter[key] == nil {
			byJitter[key] = &score{}
		}
		return byJitter[key]
	}
	var all score
	for seed := range n + 1 {
		if seed == n {
			seed = 321 // an absent rank waits for a late one of another stage
		}
		j, out := planted(uint64(seed) + firstSeed())
		if out == nil {
			continue
		}
		absences := []string{"complete"}
		if j.ranks >= 4 && j.ranks <= 16 {
			absences = append(absences, "without an innocent rank")
			if j.fault == "late" || j.fault == "slow_gpu" {
				absences = append(absences, "without the late rank")
			}
		}
		for _, absence := range absences {
			ranks := j.present(absence)
			found := j.analyzed(t, out, ranks)
			says, rank := statement(&found)
			for _, g := range found.SlowGroups {
				assert.Contains(t, fmt.Sprint(found.Findings()), "slow_group, group "+g.Group)
			}
			right, quiet, fault := false, says == "none", j.fault
			switch {
			case j.fault == "none":
				right = quiet
			case j.fault == "slow_link" && !j.sisters(): // nothing to compare with: no rank may be blamed
				right, fault = quiet || says == "group", "none"
			case j.fault == "slow_link":
				right = says == "group" || says == "absent or link"
			case absence == "without the late rank":
				right = says == "absent" || says == "absent or link"
			default:
				right = says == "late" && rank == int64(j.culprit)
			}
			groups := absence + ", one group"
			if j.sisters() {
				groups = absence + ", sister groups"
			}
			size := absence + ", 4 to 16 ranks"
			if j.ranks < 4 || j.ranks > 16 {
				size = absence + ", other sizes"
			}
			for _, s := range []*score{
				&all, of(groups), of(size), of(absence), of(fmt.Sprintf("%s, %.1f ms", absence, j.jitter)), of(absence + ", " + j.fault),
				of(absence + ", " + j.topology), of(fmt.Sprintf("%s, %d steps", absence, j.steps)),
			} {
				s.add(fault == "none", right, quiet)
			}
			if !right && (!quiet || os.Getenv("OTELGPU_MISSES") != "") {
				t.Logf("seed %d, %s: %s %d ranks %d steps %.0f ms %s %.1f ms fault %s %.0f %% %s %s x%.1f lead %.1f culprit %d: %s",
					seed, absence, j.topology, j.ranks, j.steps, j.stepTime, j.noise, j.jitter, j.fault, j.percent, j.phase, j.pattern,
					j.factor, j.lead, j.culprit, found.Says)
			}
		}
	}
	keys := make([]string, 0, len(byJitter))
	for k := range byJitter {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		t.Logf("%-36s %s", k, byJitter[k])
	}
	t.Logf("%-36s %s", "all", all)
	assert.LessOrEqual(t, all.wrong+all.alarms, max(0, n-50)/100, "statements that are wrong")
	assert.Greater(t, float64(byJitter["complete"].right), 0.75*float64(byJitter["complete"].right+byJitter["complete"].missed))
}
