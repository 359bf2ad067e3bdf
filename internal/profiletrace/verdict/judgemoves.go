// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// Move is what a kernel does that only moves bytes on the device.
type Move uint8

// Moves.
const (
	MovesNothing Move = iota // it computes
	MovesLayout              // to another order of the dimensions
	MovesType                // to another type of elements
	MovesJoin                // to beside others, or to within a border
	MovesCopy                // as they are
	MovesFill                // writes one value
	moveCount
)

// moveTexts are what is done to tensors, and what to do about it.
var moveTexts = [moveCount]struct{ done, remedy string }{
	MovesLayout: {"brought into another layout", "one layout from end to end (model and inputs in " +
		"memory_format=torch.channels_last, or neither), kernels that take the layout that is there"},
	MovesType: {"cast to another type", "keep weights and inputs in the type in which they are used, one autocast " +
		"region around all of it so that its casts of weights are kept, fused kernels (torch.compile)"},
	MovesCopy: {"copied on the device", "views in place of copies (no clone, contiguous or repeat where a stride does), " +
		"fused kernels (torch.compile)"},
	MovesJoin: {"joined or padded", "write into one buffer that is allocated once"},
	MovesFill: {"filled with one value", "set_to_none=True, empty in place of zeros where all is written"},
}

// notableMove is the part of the time of all moves from which on a kind of them is named as a cause.
const notableMove = 0.25

// moveKey is what moves bytes, and for whom.
type moveKey struct {
	move         Move
	name, caller uint32
	kernel       bool // name is of a kernel, else of an operator
}

// moved is what kernels that move bytes took.
type moved struct {
	count int64
	alone time.Duration
}

func (d *Device) moves(a *Activity) *moved {
	k := moveKey{a.Moves, a.Mover, a.Caller, false}
	if k.name == 0 {
		k.name, k.kernel = a.Name, true
	}
	m := boundedmap.Bounded(d.moved, k, moveKey{move: a.Moves}, maxClasses)
	m.count++
	return m
}

// moves judges kernels that move bytes on the device and compute nothing. Where it claims their time, it returns the
// operators without them, else as they are.
func (j *judge) moves(d *Device, r *Report, needed float64) []Operator {
	var alone time.Duration
	var count int64
	var by [moveCount]time.Duration
	var where []finding.Place
	callers := map[moveKey]time.Duration{}
	for k, m := range d.moved {
		alone, count = alone+m.alone, count+m.count
		by[k.move] += m.alone
		callers[moveKey{move: k.move, caller: k.caller}] += m.alone
		name := cmp.Or(j.f.Name(k.name), "others")
		if k.kernel {
			name = j.f.Kernel(k.name)
		}
		where = append(where, finding.Place{Name: name, In: j.f.Name(k.caller), Time: m.alone, Count: m.count})
	}
	gain := time.Duration(needed * float64(alone))
	share := float64(alone) / float64(max(1, d.parts[Computing]))
	if float64(gain) < thresholdGain*float64(j.length) || share < thresholdMoves {
		if gain > j.largest.Gain && j.length > 0 {
			j.largest = finding.Finding{
				Kind: semconv.GPUFindingKindDataMovement, Gain: gain, Share: float64(gain) / float64(j.length),
			}
		}
		return r.Operators
	}
	where = Longest(where)
	kinds := []Move{MovesLayout, MovesType, MovesJoin, MovesCopy, MovesFill}
	slices.SortStableFunc(kinds, func(a, b Move) int { return cmp.Compare(by[b], by[a]) })
	var causes []string
	for _, k := range kinds {
		if float64(by[k]) < notableMove*float64(alone) {
			break
		}
		cause := moveTexts[k].done
		var caller uint32
		for c, n := range callers {
			if c.move == k && c.caller != 0 && 2*n > by[k] {
				caller = c.caller
			}
		}
		if caller != 0 {
			cause += " in " + clip(j.f.Name(caller))
		}
		causes = append(causes, cause)
	}
	most := kinds[0]
	text := finding.Count(count, "kernel", "kernels")
	if r.Steps > 1 {
		text += fmt.Sprintf(" (%.3g a step)", float64(count)/float64(r.Steps))
	}
	text += ", most in " + Names(where)
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

// without are the operators without what moves bytes only, and how fast those of which the bytes are known do that.
func (j *judge) without(list []Operator) (rest []Operator, rate string) {
	var bytes float64
	var moving time.Duration
	for _, o := range list {
		if o.movedTime > 0 && o.movedTime >= o.Time {
			if o.Bytes > 0 {
				bytes, moving = bytes+o.Bytes, moving+o.Time
			}
			continue
		}
		if o.moved > 0 { // the work stays, for the others did it
			of, alone := o.Time-o.movedTime, o.Alone-o.moved
			if o.PeakShare > 0 {
				factor := float64(o.Time) / float64(of)
				o.PeakShare, o.FLOPRate, o.ByteRate = o.PeakShare*factor, o.FLOPRate*factor, o.ByteRate*factor
			}
			o = o.within(of, alone, float64(alone)/float64(max(1, o.Alone)))
		}
		rest = append(rest, o)
	}
	if moving > 0 {
		speed := bytes / moving.Seconds()
		rate = fmt.Sprintf("; at %.3g GB/s", speed/1e9)
		if peak := j.f.Peak.MemoryBandwidth; peak > 0 {
			rate += fmt.Sprintf(" (%.3g %% of the peak)", 100*speed/peak)
		}
		rate += " where bytes are known"
	}
	return rest, rate
}
