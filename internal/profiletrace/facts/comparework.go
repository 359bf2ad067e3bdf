// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
)

// Worked is what an operator or kernel did in a step, which distinguishes more work from slower
// work. Unknown values are omitted.
type Worked struct {
	Kernels   float64  `json:"kernels"`
	FLOPs     float64  `json:"flops,omitzero"`
	Bytes     float64  `json:"bytes,omitzero"`
	FLOPRate  float64  `json:"flops_per_second,omitzero"` // over the time of the kernels with known FLOPs
	ByteRate  float64  `json:"bytes_per_second,omitzero"`
	Precision string   `json:"precision,omitempty"` // of most of it
	Shapes    []string `json:"shapes,omitempty"`    // of inputs, the longest first, if the other side has others
	variants  map[string]time.Duration
	known     [2]float64 // seconds of the kernels with known FLOPs and bytes
	most      time.Duration
}

// maxShapes bounds the shapes of one side that a comparison names; the last of them counts further
// ones.
const maxShapes = 3

func (w *Worked) add(kernels int64, r *Rate, shapes string, t time.Duration, n float64) {
	w.Kernels += float64(kernels) / n
	if r.FLOPs > 0 && r.FLOPRate > 0 {
		w.FLOPs += r.FLOPs / n
		w.known[0] += r.FLOPs / r.FLOPRate / n
	}
	if r.Bytes > 0 && r.ByteRate > 0 {
		w.Bytes += r.Bytes / n
		w.known[1] += r.Bytes / r.ByteRate / n
	}
	if t > w.most && r.Precision != "" {
		w.most, w.Precision = t, r.Precision
	}
	if shapes != "" {
		if w.variants == nil {
			w.variants = map[string]time.Duration{}
		}
		w.variants[shapes] += t
	}
}

// finish computes the rates, and the shapes that the other side does not have.
func (w *Worked) finish(other *Worked) {
	if w.known[0] > 0 {
		w.FLOPRate = w.FLOPs / w.known[0]
	}
	if w.known[1] > 0 {
		w.ByteRate = w.Bytes / w.known[1]
	}
	list := slices.SortedFunc(maps.Keys(w.variants), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.variants[b], w.variants[a]), cmp.Compare(a, b))
	})
	list = slices.DeleteFunc(list, func(s string) bool { return other.variants[s] > 0 })
	if more := len(list) - maxShapes; more > 0 {
		list = append(list[:maxShapes-1], fmt.Sprintf("and %d more shapes", more+1))
	}
	for i := range list {
		list[i] = finding.Clip(list[i])
	}
	w.Shapes = list
}

// covered is the part of the time of an operator or kernel for which its work must be known on both
// sides, so that the work is compared.
const covered = 0.9

// clearly is the ratio from which on a change of work or speed is stated.
const clearly = 1.05

// amounts returns how much the work of both sides is, in FLOPs if they are known for enough of the
// time, else in bytes; false if neither is known.
func (c *Change) amounts() (before, after float64, ok bool) {
	enough := func(kind int) bool {
		return c.Work[0].known[kind] >= covered*c.Before.Seconds() && c.Work[1].known[kind] >= covered*c.After.Seconds()
	}
	switch w := &c.Work; {
	case enough(0) && w[0].FLOPs > 0 && w[1].FLOPs > 0:
		return w[0].FLOPs, w[1].FLOPs, true
	case enough(1) && w[0].Bytes > 0 && w[1].Bytes > 0:
		return w[0].Bytes, w[1].Bytes, true
	}
	return 0, 0, false
}

// By divides the change of the time of all operators.
type By struct {
	Work    time.Duration `json:"work_ns"`     // more or less work at the rate before
	Rate    time.Duration `json:"rate_ns"`     // the same work at another rate
	OneSide time.Duration `json:"one_side_ns"` // operators that only one profile has
	Unknown time.Duration `json:"unknown_ns"`  // the work is not known
}

func (b *By) add(c *Change) {
	before, after, ok := c.amounts()
	switch {
	case c.oneSided():
		b.OneSide += c.Delta()
	case ok:
		work := scaled(c.Before, after/before) - c.Before
		b.Work += work
		b.Rate += c.Delta() - work
	default:
		b.Unknown += c.Delta()
	}
}

// String returns one line for people, with a sign for each part of at least a microsecond; empty if
// no work is known.
func (b By) String() string {
	var list []string
	for _, p := range []struct {
		what string
		t    time.Duration
	}{
		{"amount of work", b.Work},
		{"speed of the same work", b.Rate},
		{"operators of only one profile", b.OneSide},
		{"operators with unknown work", b.Unknown},
	} {
		if p.t.Abs() >= time.Microsecond {
			list = append(list, fmt.Sprintf("%s %+.3f ms", p.what, ms(p.t)))
		}
	}
	if max(b.Work.Abs(), b.Rate.Abs()) < time.Microsecond {
		return ""
	}
	return "operators: " + strings.Join(list, ", ")
}

func (c *Change) oneSided() bool { return min(c.Before, c.After) <= 0 }

// explain sets what changed in the work.
func (c *Change) explain() {
	c.Work[0].finish(&c.Work[1])
	c.Work[1].finish(&c.Work[0])
	switch {
	case c.Before <= 0:
		c.Reason, c.How = "only after", c.Work[1].String()
		return
	case c.After <= 0:
		c.Reason, c.How = "only before", c.Work[0].String()
		return
	}
	b, a := &c.Work[0], &c.Work[1]
	var reasons, how []string
	say := func(ratio float64, more, less string) {
		switch {
		case ratio >= clearly:
			reasons = append(reasons, more)
		case ratio <= 1/clearly:
			reasons = append(reasons, less)
		}
	}
	longer := c.After.Seconds() / c.Before.Seconds()
	if before, after, ok := c.amounts(); ok {
		say(after/before, "more work", "less work")
		say(longer/(after/before), "slower", "faster")
	} else if b.Kernels > 0 && a.Kernels > 0 {
		say(a.Kernels/b.Kernels, "more kernels", "fewer kernels")
		say(longer/(a.Kernels/b.Kernels), "each longer", "each shorter")
	}
	put := func(before, after float64, one, many string, rate bool) {
		if min(before, after) > 0 && (differ(before, after) || rate) {
			how = append(how, fromTo(before, after, one, many))
		}
	}
	put(b.Kernels, a.Kernels, "", "kernels", false)
	put(b.FLOPs, a.FLOPs, "FLOP", "", false)
	if max(b.FLOPs, a.FLOPs) == 0 {
		put(b.Bytes, a.Bytes, "B", "", false)
	}
	if b.Precision != a.Precision && b.Precision != "" && a.Precision != "" {
		how = append(how, b.Precision+" → "+a.Precision)
	}
	if len(reasons)+len(how)+len(b.Shapes)+len(a.Shapes) > 0 {
		if min(b.FLOPRate, a.FLOPRate) > 0 {
			put(b.FLOPRate, a.FLOPRate, "FLOP/s", "", true)
		} else {
			put(b.ByteRate, a.ByteRate, "B/s", "", true)
		}
	}
	switch before, after := strings.Join(b.Shapes, "; "), strings.Join(a.Shapes, "; "); {
	case before != "" && after != "":
		how = append(how, before+" → "+after)
	case before != "" && len(a.variants) > 0:
		how = append(how, "no longer "+before)
	case after != "" && len(b.variants) > 0:
		how = append(how, "also "+after)
	}
	c.Reason, c.How = strings.Join(reasons, ", "), strings.Join(how, ", ")
}

// differ reports whether two amounts differ by more than rounding.
func differ(a, b float64) bool { return max(a, b) > 1.001*min(a, b) }

// fromTo returns two values in one unit; counts have no prefix.
func fromTo(before, after float64, unit, counted string) string {
	if counted != "" {
		return fmt.Sprintf("%.4g → %.4g %s", before, after, counted)
	}
	by, prefix := 1.0, ""
	for _, p := range []string{"k", "M", "G", "T", "P"} {
		if max(before, after) < 1000*by {
			break
		}
		by, prefix = 1000*by, p
	}
	return fmt.Sprintf("%.3g → %.3g %s%s", before/by, after/by, prefix, unit)
}

// String returns the work in words.
func (w *Worked) String() string {
	count := "kernels"
	if w.Kernels == 1 {
		count = "kernel"
	}
	list := []string{fmt.Sprintf("%.4g %s", w.Kernels, count)}
	if w.FLOPs > 0 {
		list = append(list, strings.TrimSpace(finding.Rate(w.FLOPs, "FLOP "+w.Precision)))
	}
	if w.FLOPRate > 0 {
		list = append(list, finding.Rate(w.FLOPRate, "FLOP/s"))
	}
	return strings.Join(append(list, w.Shapes...), ", ")
}

// work returns how the work changed, for a line of the table; empty if it is the same.
func (c *Change) work() string {
	s := strings.Trim(c.Reason+": "+c.How, ": ")
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

// worked adds what operators and kernels of one name did on one side.
type worked map[string]*[2]Worked

func (w worked) of(name string, side int) *Worked { return &boundedmap.Of(w, name)[side] }
