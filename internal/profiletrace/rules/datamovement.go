// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// moveTexts describe what is done to tensors, and the remedy.
var moveTexts = [timeline.MoveCount]struct{ done, remedy string }{
	timeline.MovesLayout: {"brought into another layout", "one layout from end to end (model and inputs in " +
		"memory_format=torch.channels_last, or neither), kernels that take the layout that is there"},
	timeline.MovesType: {"cast to another type", "keep weights and inputs in the type in which they are used, one " +
		"autocast region around all of it so that its casts of weights are kept, fused kernels (torch.compile)"},
	timeline.MovesCopy: {"copied on the device", "views in place of copies (no clone, contiguous or repeat where a " +
		"stride does), fused kernels (torch.compile)"},
	timeline.MovesJoin: {"joined or padded", "write into one buffer that is allocated once"},
	timeline.MovesFill: {"filled with one value", "set_to_none=True, empty in place of zeros where all is written"},
}

// notableMove is the part of the time of all moves from which on a kind of them is named as a
// cause. The longest one always is.
const notableMove = semconv.FindingDataMovementCause

// moves judges kernels that move bytes on the device and compute nothing. If it claims their time,
// it returns the operators without them, otherwise unchanged.
func (j *judge) moves(d *facts.Totals, r *facts.Report, needed float64) []facts.Operator {
	var alone time.Duration
	var count int64
	var by [timeline.MoveCount]time.Duration
	var where []finding.Location
	callers := map[facts.MoveKey]time.Duration{}
	for k, m := range d.Moved {
		alone, count = alone+m.Alone, count+m.Count
		by[k.Move] += m.Alone
		callers[facts.MoveKey{Move: k.Move, Caller: k.Caller}] += m.Alone
		name := cmp.Or(j.f.Name(k.Name), "others")
		if k.Kernel {
			name = j.f.Kernel(k.Name)
		}
		where = append(where, finding.Location{Name: name, In: j.f.Name(k.Caller), Time: m.Alone, Count: m.Count})
	}
	gain := time.Duration(needed * float64(alone))
	share := float64(alone) / float64(max(1, d.Parts[timeline.Computing]))
	if float64(gain) < thresholdGain*float64(j.length) || share < thresholdMoves {
		if gain > j.largest.Gain && j.length > 0 {
			j.largest = finding.Finding{
				Kind: semconv.GPUFindingKindDataMovement, Gain: gain, Share: float64(gain) / float64(j.length),
			}
		}
		return r.Operators
	}
	where = finding.Longest(where)
	kinds := []timeline.Move{
		timeline.MovesLayout, timeline.MovesType, timeline.MovesJoin, timeline.MovesCopy, timeline.MovesFill,
	}
	slices.SortStableFunc(kinds, func(a, b timeline.Move) int { return cmp.Compare(by[b], by[a]) })
	var causes []string
	for _, k := range kinds {
		if len(causes) > 0 && float64(by[k]) < notableMove*float64(alone) {
			break
		}
		cause := moveTexts[k].done
		var caller uint32
		for c, n := range callers {
			if c.Move == k && c.Caller != 0 && 2*n > by[k] {
				caller = c.Caller
			}
		}
		if caller != 0 {
			cause += " in " + finding.Clip(j.f.Name(caller))
		}
		causes = append(causes, cause)
	}
	most := kinds[0]
	text := finding.Count(count, "kernel", "kernels")
	if r.Steps > 1 {
		text += fmt.Sprintf(" (%.3g a step)", float64(count)/float64(r.Steps))
	}
	text += ", most in " + finding.Names(where)
	rest, rate := j.without(r.Operators)
	j.add(finding.Finding{
		Kind: semconv.GPUFindingKindDataMovement, Gain: gain, Where: where, Certainty: finding.Medium,
		Chain: []string{
			"tensors are " + strings.Join(causes, ", "),
			fmt.Sprintf("kernels that move bytes on the device and compute nothing take %.3g %% of its computing", 100*share),
			fmt.Sprintf("%s did nothing else for %s", j.device0(), finding.Duration(gain)),
		},
		Evidence: text + rate, Remedy: moveTexts[most].remedy,
	})
	return rest
}

// without returns the operators that do more than move bytes, and the rate of the others whose
// bytes are known.
func (j *judge) without(list []facts.Operator) (rest []facts.Operator, rate string) {
	var bytes float64
	var moving time.Duration
	for _, o := range list {
		if o.MovedTime > 0 && o.MovedTime >= o.Time {
			if o.Bytes > 0 {
				bytes, moving = bytes+o.Bytes, moving+o.Time
			}
			continue
		}
		if o.Moved > 0 { // the work stays, for the others did it
			of, alone := o.Time-o.MovedTime, o.Alone-o.Moved
			if o.PeakShare > 0 {
				factor := float64(o.Time) / float64(of)
				o.PeakShare, o.FLOPRate, o.ByteRate = o.PeakShare*factor, o.FLOPRate*factor, o.ByteRate*factor
			}
			o = o.Within(of, alone, float64(alone)/float64(max(1, o.Alone)))
		}
		rest = append(rest, o)
	}
	if moving > 0 {
		speed := bytes / moving.Seconds()
		rate = "; at " + finding.Rate(speed, "B/s")
		if peak := j.f.Peak.MemoryBandwidth; peak > 0 {
			rate += fmt.Sprintf(" (%.3g %% of the peak)", 100*speed/peak)
		}
		rate += " where bytes are known"
	}
	return rest, rate
}
