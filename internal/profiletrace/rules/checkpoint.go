// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// checkpoint judges host work in functions that save a checkpoint. It subtracts that time from the account, so that no
// finding on host work claims it again.
func (j *judge) checkpoint() {
	known := map[uint32]bool{} // few names account for many times
	saves := func(id uint32) bool {
		is, ok := known[id]
		if !ok {
			is = timeline.SavesCheckpoint(j.f.Name(id))
			known[id] = is
		}
		return is
	}
	var sum, afterWaits int64
	var saving []int
	var where []finding.Location
	for i, s := range j.account.Spent {
		if s.At.Cause != timeline.CauseHost && s.At.Cause != timeline.CauseAfterWait ||
			!saves(s.At.Name) && !saves(s.At.In&^timeline.InnerName) {
			continue
		}
		name, in := j.f.Name(s.At.Name), j.f.Name(s.At.In&^timeline.InnerName)
		if s.At.Cause == timeline.CauseAfterWait { // for the copies of the state, inside the range that saves it
			name = in
			afterWaits += s.Time
		}
		if s.At.In&timeline.InnerName != 0 {
			name, in = in, name
		}
		sum += s.Time
		saving = append(saving, i)
		where = append(where, finding.Location{Name: cmp.Or(name, in), In: in, Time: time.Duration(s.Time), Count: s.Count})
	}
	if float64(sum) < thresholdGain*float64(j.length) || sum == 0 {
		return
	}
	for _, i := range saving {
		j.account.Spent[i].Time, j.account.Spent[i].Count = 0, 0
	}
	j.account.Idles[timeline.CauseHost] -= sum - afterWaits
	j.account.Idles[timeline.CauseAfterWait] -= afterWaits
	where = finding.Longest(where)
	v := finding.New(semconv.GPUFindingKindCheckpoint, finding.High)
	v.Gain, v.Where = time.Duration(sum), where
	v.Chain, v.Evidence = j.idleChain("the host saved a checkpoint", sum), "in "+finding.Names(where)
	j.add(v)
}
