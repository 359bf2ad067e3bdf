// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// slowOperator is an operator that is far below the peak, with all shapes for which it is.
type slowOperator struct {
	gain, time, atPeak, narrow, alone float64
	compute                           float64 // of time: what compute bounds less what memory does
	count                             int64
	where                             []finding.Location
	best                              facts.Operator // the longest
}

// why returns what makes it slow, by its shapes and kernels, and possible remedies.
func (o *slowOperator) why(multiprocessors int) (cause, remedy string) {
	name, few := finding.Clip(o.best.Name), tiles(o.best.Name, o.best.Shapes)
	mean := time.Duration(o.time) / time.Duration(max(1, o.count))
	switch {
	case mean < facts.ShortKernel:
		return fmt.Sprintf("the kernels of %s last %s: too little work to fill the device", name, finding.Duration(mean)),
			"fuse it with its neighbors, larger batches"
	case few > 0 && few < int64(multiprocessors):
		return fmt.Sprintf("the result of %s has %d tiles of %d² for %d multiprocessors", name, few, tileSide,
				multiprocessors),
			"split-K or stream-K, batched or grouped products, smaller tiles"
	case o.narrow > o.alone/2:
		return fmt.Sprintf("the kernels of %s have fewer blocks than the device has multiprocessors", name),
			"larger or batched problems, split-K, another tile size"
	case o.compute <= 0:
		return name + " moves bytes slowly (access pattern, layout, vector width)",
			"contiguous and aligned tensors, fusion, another layout"
	}
	return name + " multiplies slowly (shapes, layout, kernel choice)",
		"dimensions that are multiples of the tile, another precision or library, tuning"
}

// leastKernel is how long a kernel lasts at least, in ns, however little it does.
const leastKernel = semconv.FindingLowEfficiencyKernelDuration * float64(time.Second)

// efficiency judges operators that are far below the peak, by name; it returns the operators that
// its findings claim. needed is the part of computing time that no finding claims yet.
func (j *judge) efficiency(r *facts.Report, needed float64) map[string]bool {
	slow := map[string]*slowOperator{}
	for _, o := range r.Operators {
		if o.PeakShare <= 0 || o.PeakShare >= lowShare || o.Alone <= 0 || slowInLastWave(&o) {
			continue
		}
		x := boundedmap.Of(slow, o.Name)
		if x.where == nil {
			x.best = o
		}
		alone := needed * float64(o.Alone)
		least := leastKernel * float64(o.Kernels) / float64(max(1, o.Time)) // no launch is shorter
		x.gain += alone * max(0, 1-max(o.PeakShare/reachable, least))
		x.alone += alone
		x.time += float64(o.Time)
		x.atPeak += o.PeakShare * float64(o.Time)
		x.narrow += needed * float64(o.Narrow)
		x.count += o.Kernels
		if o.Bound == "compute" {
			x.compute += float64(o.Time)
		} else {
			x.compute -= float64(o.Time)
		}
		x.where = append(x.where, finding.Location{Name: o.WithShapes(), In: o.Kernel, Time: o.Alone, Count: o.Calls})
	}
	claimed := map[string]bool{}
	list := slices.SortedFunc(maps.Keys(slow), func(a, b string) int {
		return cmp.Or(cmp.Compare(slow[b].gain, slow[a].gain), cmp.Compare(a, b))
	})
	for _, name := range list[:min(maxEfficiency, len(list))] {
		x := slow[name]
		if x.gain < thresholdGain*float64(j.length) {
			j.add(finding.Finding{Kind: semconv.GPUFindingKindLowEfficiency, Gain: time.Duration(x.gain)})
			break
		}
		claimed[name] = true
		side, best := "bandwidth", &x.best
		if x.compute > 0 {
			side = "FLOP/s"
		}
		share := fmt.Sprintf("%.3g %% of the peak %s", 100*x.atPeak/x.time, side)
		if peak := j.f.Peak.FLOPs.Of(best.Precision); best.Bound == "memory" && peak > 0 && best.FLOPs > best.Bytes {
			share += fmt.Sprintf(" (%.3g %% of the peak FLOP/s)", 100*best.FLOPRate/peak)
		}
		cause, remedy := x.why(j.f.Peak.SMs)
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindLowEfficiency, Gain: time.Duration(x.gain), Where: finding.Longest(x.where),
			Certainty: finding.Medium,
			Chain: []string{
				cause, share + " of " + r.Efficiency.Peak,
				fmt.Sprintf("%s computed for %s where %s would do at %.0f %% of the peak", j.device0(), finding.Duration(x.alone),
					finding.Duration(x.alone-x.gain), 100*reachable),
			},
			Evidence: fmt.Sprintf("longest: %s, %s, %s, in %s",
				finding.Clip(cmp.Or(strings.TrimSpace(best.Shapes), best.Name)), finding.Rate(best.FLOPRate, "FLOP/s"),
				finding.Rate(best.ByteRate, "B/s"), finding.Clip(best.Kernel)),
			Remedy: remedy,
		})
	}
	return claimed
}

// slowInLastWave reports whether the full waves of an operator's kernels are not slow: tailWave
// judges it.
func slowInLastWave(o *facts.Operator) bool {
	full := o.PeakShare / (1 - o.Tail/float64(max(1, o.Alone)))
	return o.Tail > 0 && full >= lowShare && full <= reachable
}

// tileSide is the side of what one block of a product usually computes: 64 to 256 on tensor cores.
const tileSide = 128

// tiles returns how many tiles the result of a product of matrices has, by the shapes of its first
// two tensors: [..., m, k] and [..., k, n], of linear [n, k]; 0 if that is not known.
func tiles(name, shapes string) int64 {
	linear := strings.HasSuffix(name, "linear")
	if !linear && !strings.HasSuffix(name, "mm") && !strings.HasSuffix(name, "matmul") {
		return 0
	}
	list := strings.Fields(shapes)
	if strings.Contains(name, "add") && len(list) > 2 {
		list = list[1:]
	}
	if len(list) < 2 {
		return 0
	}
	a, b := dimensions(list[0]), dimensions(list[1])
	if len(a) < 2 || len(b) < 2 {
		return 0
	}
	rows, columns, batch := a[len(a)-2], b[len(b)-1], int64(1)
	if linear {
		columns = b[0]
	}
	for _, d := range a[:len(a)-2] {
		if linear {
			rows *= d
		} else {
			batch *= d
		}
	}
	return batch * ((rows + tileSide - 1) / tileSide) * ((columns + tileSide - 1) / tileSide)
}

// dimensions reads "bf16[256,512]".
func dimensions(shape string) (list []int64) {
	_, text, _ := strings.Cut(strings.TrimSuffix(shape, "]"), "[")
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return nil
		}
		list = append(list, n)
	}
	return list
}
