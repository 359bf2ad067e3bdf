// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Change is the difference of one operation, at one position in the nesting, between two runs of a
// program.
type Change struct {
	Path          []string // names from the outermost section to this one
	Before, After Figures  // Count is 0 where it did not run
}

// Ratio returns the mean duration after divided by the mean duration before; 0 if either is
// unknown.
func (c Change) Ratio() float64 {
	b, a := c.Before.Duration, c.After.Duration
	if b.Count == 0 || a.Count == 0 || b.Mean <= 0 {
		return 0
	}
	return float64(a.Mean) / float64(b.Mean)
}

// Beyond reports whether the mean durations differ by more than k standard errors of their
// difference (Welch, Biometrika 34, 1947). Without a real difference, k = 3 reports one in 3 of
// 1,000 cases, and more often if runs depend on each other, as on one clock frequency.
func (c Change) Beyond(k float64) bool {
	b, a := c.Before.Duration, c.After.Duration
	if b.Count < 2 || a.Count < 2 {
		return false
	}
	// StdDev divides by Count; the estimate of a mean's variance by Count−1.
	v := math.Pow(float64(b.StdDev), 2)/float64(b.Count-1) + math.Pow(float64(a.StdDev), 2)/float64(a.Count-1)
	return math.Abs(float64(a.Mean-b.Mean)) > k*math.Sqrt(v)
}

// Compare returns the differences of the operations of two runs, such as before and after a change
// of the program, sorted by the change of total time, largest first.
func Compare(before, after Summary) []Change {
	var out []Change
	index := map[string]int{}
	at := func(path []string) *Change {
		k := strings.Join(path, "\x00")
		i, ok := index[k]
		if !ok {
			i = len(out)
			index[k] = i
			out = append(out, Change{Path: path})
		}
		return &out[i]
	}
	for i := range before.Operations {
		c := at(before.Operations[i].Path)
		c.Before.merge(before.Operations[i].All)
	}
	for i := range after.Operations {
		c := at(after.Operations[i].Path)
		c.After.merge(after.Operations[i].All)
	}
	change := func(c Change) int64 {
		d := int64(c.After.Duration.Total - c.Before.Duration.Total)
		return max(d, -d)
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(change(b), change(a)) })
	return out
}

// WriteComparison writes the result of [Compare] as a table of 100 columns. A "*" marks means that
// differ by more than three standard errors. It returns the error of w.
func WriteComparison(w io.Writer, before, after Summary) error {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU sections: %s before, %s after\n\n", duration(before.Total()), duration(after.Total()))
	changes := Compare(before, after)
	t := newTable(&b, 9, 9, 9, 9, 9, 9, 8)
	names := make([]*Operation, len(changes))
	for i := range changes {
		names[i] = &Operation{Info: Info{Name: strings.Join(changes[i].Path, " > ")}}
	}
	t.name(names)
	t.groups(group{"count", 2}, group{"total", 2}, group{"mean", 2})
	t.row("Operation", "before", "after", "before", "after", "before", "after", "ratio")
	for i, c := range changes {
		ratio := scaled(c.Ratio(), 1)
		if c.Beyond(3) {
			ratio += "*"
		}
		t.row(names[i].Name, plain(c.Before.Count), plain(c.After.Count), shown(c.Before.Duration.Total, duration),
			shown(c.After.Duration.Total, duration),
			shown(c.Before.Duration.Mean, duration), shown(c.After.Duration.Mean, duration), ratio)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
