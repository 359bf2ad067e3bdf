// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Findings returns the findings on the job: slow groups, ranks without a profile, or late ranks.
func (j *Job) Findings() []finding.Finding {
	list := []finding.Finding{}
	if j.Absent > 0 {
		list = append(list, absentFinding(j))
	}
	for i := range j.SlowGroups {
		list = append(list, slowFinding(j, &j.SlowGroups[i]))
	}
	for i := range j.Late {
		list = append(list, lateFinding(j, &j.Late[i]))
	}
	return list
}

// Revise replaces what the findings on a file say about other ranks by what its job shows. One file
// alone judges communication by its shortest run, which contains a wait if a rank waits every time;
// the job knows the waits.
func Revise(found []Job, file string, devices []facts.Report) {
	for i := range found {
		for k := range found[i].Ranks {
			r := &found[i].Ranks[k]
			if r.path != file || r.Collectives == 0 {
				continue
			}
			if d := deviceOf(r.devices, devices); d != nil {
				found[i].revise(r, d.Findings, d.Window)
			}
		}
	}
}

func (j *Job) revise(r *Rank, list []finding.Finding, window time.Duration) {
	at := func(kind string) *finding.Finding {
		i := slices.IndexFunc(list, func(v finding.Finding) bool { return v.Kind == kind })
		if i < 0 {
			return &finding.Finding{}
		}
		return &list[i]
	}
	late, moves := at(semconv.GPUFindingKindLateRank), at(semconv.GPUFindingKindExposedCommunication)
	exposed := late.Gain + moves.Gain
	waits := min(r.Waited, exposed)
	if exposed == 0 {
		return
	}
	set := func(v *finding.Finding, gain time.Duration) {
		v.Gain, v.Weight = gain, gain
		v.Share = float64(gain) / float64(max(1, window))
	}
	if late.Kind == "" && 2*waits > moves.Gain { // most of what seemed to move bytes is waiting
		late, moves = moves, &finding.Finding{}
		late.Kind = semconv.GPUFindingKindLateRank
		waits = min(waits, exposed)
	}
	cause, remedy := j.cause()
	if late.Kind != "" {
		set(late, waits)
		late.Certainty, late.Remedy = finding.Medium, remedy
		late.Chain = []string{
			cause, fmt.Sprintf("this one waited in collectives for %s with nothing to compute", finding.Duration(waits)),
		}
		late.Evidence = fmt.Sprintf("%d ranks compared: by the arrivals of all", len(j.Ranks))
		waits = 0 // the rest moves bytes
	}
	if moves.Kind != "" {
		set(moves, max(0, exposed-late.Gain-waits))
		moves.Evidence += "; waits for other ranks are not part of it, by the arrivals of all"
		for i := range moves.Chain[1:] {
			moves.Chain[i+1] = "collectives move bytes for " + finding.Duration(moves.Gain) + " with nothing to compute"
		}
	}
	slices.SortStableFunc(list, func(a, b finding.Finding) int { return int(min(1, max(-1, b.Weight-a.Weight))) })
}

// cause returns in a clause why ranks wait, and what to do.
func (j *Job) cause() (cause, remedy string) {
	switch {
	case j.Bubbles > 0:
		return "stages of a pipeline wait for each other's results (bubbles)",
			"more micro-batches in a step, or an interleaved schedule"
	case j.Absent > 0:
		return "a rank without a profile arrived late", "profile " + listed(j.Missing) + ", too"
	case len(j.Late) > 0:
		late := j.Late[0].facts(j)
		return late.Sentence(), "see the job's finding on that rank"
	case len(j.SlowGroups) > 0:
		return "collectives of a group with a slow link ended late", "see the job's finding on that link"
	}
	return "ranks arrive at different times, none later than the others beyond chance", "see the job's sentence"
}
