// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
)

// Comparison holds the changes between two profiles, in time per step; of several devices, their
// mean. Steps are complete: host time before the device started in the first step and after it
// ended in the last one counts; without steps, everything that findings judge before and after the
// window counts.
type Comparison struct {
	Before     time.Duration `json:"before_ns"` // of a step; of the window where a profile has no steps
	After      time.Duration `json:"after_ns"`
	PerStep    bool          `json:"per_step"`
	Parts      []Change      `json:"parts"` // they add up to the difference of the step but for rounding
	Operators  []Change      `json:"operators"`
	Kernels    []Change      `json:"kernels"`
	ByWork     By            `json:"by_work,omitzero"`
	StepCounts [2]int64      `json:"steps"`
	Models     [2]string     `json:"models"` // of the first device of each; empty: not stated
}

// Change is the time of one part, operator or kernel in a step of both profiles.
type Change struct {
	Name   string        `json:"name"`
	Before time.Duration `json:"before_ns"`
	After  time.Duration `json:"after_ns"`
	Work   [2]Worked     `json:"work,omitzero"` // before and after, of operators and kernels
	// Reason is whether it is more work or slower work ("more work, slower"), How what changed in
	// the work.
	Reason string `json:"reason,omitempty"`
	How    string `json:"how,omitempty"`
}

// Delta returns After minus Before.
func (c Change) Delta() time.Duration { return c.After - c.Before }

// Compare compares the devices of two profiles. Changes are sorted by their size, largest first.
func Compare(before, after []Report) Comparison {
	c := Comparison{PerStep: steps(before) > 0 && steps(after) > 0, StepCounts: [2]int64{steps(before), steps(after)}}
	var window [2]time.Duration
	parts, operators, kernels := changes{}, changes{}, changes{}
	works := [2]worked{{}, {}} // of operators and of kernels
	for side, list := range [2][]Report{before, after} {
		if len(list) > 0 {
			c.Models[side] = list[0].Model
		}
		n := float64(max(1, len(list)))
		if c.PerStep {
			n *= float64(c.StepCounts[side])
		}
		part := func(t time.Duration) time.Duration { return time.Duration(float64(t) / n) }
		put := func(to changes, name string, t time.Duration) { boundedmap.Of(to, name)[side] += part(t) }
		for _, r := range list {
			window[side] += part(r.Window)
			put(parts, "computing", r.Parts.Computing)
			around := r.Around // so that the first and the last step are whole
			if !c.PerStep {
				around = slices.Concat(around, r.Before)
			}
			for _, i := range around {
				window[side] += part(i.Time)
			}
			for _, i := range slices.Concat(r.Idle, around) {
				put(parts, "idle: "+i.Cause.ForPeople(), i.Time)
			}
			for _, o := range r.Operators {
				put(operators, o.Name, o.Time)
				works[0].of(o.Name, side).add(o.Kernels, &o.Rate, o.Shapes, o.Time, n)
			}
			for _, k := range r.ByKernel {
				put(kernels, k.Name, k.Time)
				works[1].of(k.Name, side).add(k.Count, &k.Rate, "", k.Time, n)
			}
			for _, k := range r.Copies {
				name := strings.TrimSpace(strings.ReplaceAll(k.Direction, "_", " ") + " " + k.Memory)
				put(parts, "exposed copies: "+cmp.Or(name, "memset"), k.Exposed)
			}
			for _, k := range r.Collectives {
				put(parts, "waiting for a late rank", k.Waiting)
				put(parts, "exposed communication", k.Moving)
			}
		}
	}
	c.Before, c.After = window[0], window[1]
	c.Parts, c.Operators, c.Kernels = parts.sorted(), operators.sorted(), kernels.sorted()
	for i, list := range [][]Change{c.Operators, c.Kernels} {
		for k := range list {
			list[k].Work = *works[i][list[k].Name]
			list[k].explain()
		}
	}
	for i := range c.Operators {
		c.ByWork.add(&c.Operators[i])
	}
	return c
}

func steps(list []Report) (n int64) {
	for _, r := range list {
		n = max(n, r.Steps)
	}
	return n
}

// changes are times before and after, by name.
type changes map[string]*[2]time.Duration

func (c changes) sorted() (list []Change) {
	for name, t := range c {
		if *t != [2]time.Duration{} {
			list = append(list, Change{Name: name, Before: t[0], After: t[1]})
		}
	}
	slices.SortFunc(list, func(a, b Change) int {
		return cmp.Or(cmp.Compare(b.Delta().Abs(), a.Delta().Abs()), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// Write prints the comparison: first what changed most, then tables with at most rows lines each
// (0: all).
func (c Comparison) Write(w io.Writer, rows int) error {
	unit := "the window"
	if c.PerStep {
		unit = "a step"
	}
	if _, err := fmt.Fprintf(w, "%s\n", c.headline(unit)); err != nil {
		return err
	}
	if by := c.ByWork.String(); by != "" {
		if _, err := fmt.Fprintf(w, "%s\n", by); err != nil {
			return err
		}
	}
	for _, t := range []struct {
		title string
		list  []Change
	}{{"parts of " + unit, c.Parts}, {"operators (time of their kernels)", c.Operators}, {"kernels", c.Kernels}} {
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(tw, "\nchange ms\tbefore ms\tafter ms\t  %s\n", t.title)
		n := len(t.list)
		if rows > 0 {
			n = min(n, rows)
		}
		for _, x := range t.list[:n] {
			fmt.Fprintf(tw, "%+.3f\t%.3f\t%.3f\t  %s\n", ms(x.Delta()), ms(x.Before), ms(x.After), finding.Clip(x.Name)+x.work())
		}
		if rest := len(t.list) - n; rest > 0 {
			fmt.Fprintf(tw, "\t\t\t  and %d more (--rows)\n", rest)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (c Comparison) headline(unit string) string {
	delta := c.After - c.Before
	word := "longer"
	if delta < 0 {
		word = "shorter"
	}
	ratio := float64(delta.Abs()) / float64(max(1, c.Before))
	much := fmt.Sprintf("%.3g %%", 100*ratio)
	if ratio >= 10 {
		much = fmt.Sprintf("%.3g times", ratio)
	}
	s := fmt.Sprintf("%s is %s (%s) %s: %s before, %s after", unit, finding.Duration(delta.Abs()), much, word,
		finding.Duration(c.Before), finding.Duration(c.After))
	var most []string
	for _, p := range c.Parts[:min(3, len(c.Parts))] {
		most = append(most, fmt.Sprintf("%s %+.3g ms", p.Name, ms(p.Delta())))
	}
	if len(most) > 0 {
		s += "; " + strings.Join(most, ", ")
	}
	if m := c.Models; m[0] != m[1] && m[0] != "" && m[1] != "" {
		s += fmt.Sprintf("; on another device: %s before, %s after", m[0], m[1])
	}
	if share := c.common(); share < fewInCommon {
		s += fmt.Sprintf("; operators and kernels of both take %.3g %% of their time: are they runs of the same program?",
			100*share)
	}
	return s
}

// fewInCommon is the share of time below which two profiles are hardly comparable.
const fewInCommon = 0.2

// common returns the share of the time of operators, or of kernels if that is larger, that both
// profiles have; 1 if there are none.
func (c Comparison) common() (share float64) {
	for _, list := range [][]Change{c.Operators, c.Kernels} {
		var both, all time.Duration
		for i := range list {
			all += list[i].Before + list[i].After
			if list[i].Before > 0 && list[i].After > 0 {
				both += list[i].Before + list[i].After
			}
		}
		if all == 0 {
			return 1
		}
		share = max(share, float64(both)/float64(all))
	}
	return share
}

func ms(t time.Duration) float64 { return float64(t) / 1e6 }
