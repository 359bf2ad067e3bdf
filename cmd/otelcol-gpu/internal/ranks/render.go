// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// Render writes a verdict and a table for each job of several ranks; nothing where there is none.
func (p *Profiles) Render(w io.Writer) error {
	for _, job := range p.jobs() {
		says, table := report(job)
		if _, err := fmt.Fprintf(w, "\n%s\n\n%s", says, table); err != nil {
			return err
		}
	}
	return nil
}

// Verdicts are what Render says of each job before its table.
func (p *Profiles) Verdicts() (list []string) {
	for _, job := range p.jobs() {
		says, _ := report(job)
		list = append(list, says)
	}
	return list
}

// notable is the share of the window from which on lateness is worth a word.
const notable = 0.01

func report(job []*profile) (says, rows string) {
	var all []straggler.Collective
	var window int64 // of the rank that was recorded longest
	for _, x := range job {
		straggler.Number(x.collectives)
		all = append(all, x.collectives...)
		window = max(window, x.window.End-x.window.Start)
	}
	arrivals := map[int64]straggler.Arrival{}
	clocks := map[int64]int64{}
	for _, a := range straggler.Arrivals(all) {
		arrivals[a.Rank] = a
		clocks[a.Rank] = int64(a.Clock * 1e9)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d ranks of one job", len(job))
	if world := job[0].world; world > 0 {
		fmt.Fprintf(&b, " of %d", world)
	}
	if id := job[0].job; id != "" {
		fmt.Fprintf(&b, ", %s", printable.Line(id))
	}
	b.WriteString(": ")
	if len(arrivals) > 1 {
		b.WriteString(byArrival(job, arrivals, clocks, float64(window)*1e-9))
	} else {
		b.WriteString(byStep(job))
	}
	var t strings.Builder
	table(&t, job, arrivals)
	return b.String(), t.String()
}

// byArrival names the rank that the others wait for longest.
func byArrival(job []*profile, arrivals map[int64]straggler.Arrival, clocks map[int64]int64, window float64) string {
	late := slices.MaxFunc(job, func(a, b *profile) int {
		return cmp.Or(cmp.Compare(arrivals[a.rank].HeldUp, arrivals[b.rank].HeldUp), cmp.Compare(b.rank, a.rank))
	})
	a := arrivals[late.rank]
	others := float64(len(arrivals) - 1)
	if a.HeldUp/others < notable*window {
		return fmt.Sprintf("no rank holds the others up: at the collectives they wait less than %.0f %% of the time for any",
			100*notable)
	}
	s := fmt.Sprintf(
		"rank %d holds the others up: it comes last at %d of %d collectives, and they wait %s for it, %s each. ",
		late.rank, a.Last, a.Collectives, seconds(a.HeldUp), seconds(a.HeldUp/others))
	e := doing(job, late, a.LastAt, clocks)
	const least = 0.1 // of the lateness: what is less does not explain it
	var parts []string
	part := func(ns int64, what string) {
		if t := float64(ns) * 1e-9; t > least*a.HeldUp/others {
			parts = append(parts, seconds(t)+" "+what)
		}
	}
	part(e.computing, "more of computation")
	part(e.moving, "more of copies")
	idle := "more with its device idle"
	if e.in != "" {
		idle += fmt.Sprintf(", while its host was mostly in %s (%s)", printable.Line(e.in), seconds(float64(e.inTime)*1e-9))
	}
	part(e.idle, idle)
	if len(parts) > 0 {
		s += "Before those it has, against the others' median, " + strings.Join(parts, "; ") + ". "
	}
	var waited, communication float64
	for _, x := range job {
		if x != late {
			waited += arrivals[x.rank].Waited
			communication += x.communication()
		}
	}
	if communication > 0 {
		s += fmt.Sprintf("Of the others' communication of %s, %s (%.0f %%) is waiting for a late rank.",
			seconds(communication), seconds(min(waited, communication)),
			100*min(1, waited/communication))
	}
	return strings.TrimSpace(s)
}

// byStep compares the ranks' own time in steps, where no collectives match.
func byStep(job []*profile) string {
	var list []straggler.Rank
	for _, x := range job {
		if x.steps > 0 {
			list = append(list, straggler.Rank{Rank: x.rank, Own: x.own()})
		}
	}
	verdicts, _ := straggler.Compare(list)
	if len(verdicts) < 2 {
		return "no collectives of several ranks match, and they have no steps to compare"
	}
	worst := slices.MaxFunc(verdicts, func(a, b straggler.Verdict) int { return cmp.Compare(a.Score, b.Score) })
	if !worst.Slow {
		return "no collectives of several ranks match; by their own time in steps (without communication that nothing hides) no rank stands out"
	}
	return fmt.Sprintf(
		"no collectives of several ranks match; by its own time in steps (without communication that nothing hides) rank %d is slow, %.3g times the median",
		worst.Rank, worst.Score)
}

func (x *profile) own() float64 {
	return straggler.Own(x.stepTime/float64(x.steps), x.exposed/float64(x.steps))
}

// communication is for how long at least one collective ran, in s.
func (x *profile) communication() float64 {
	var list []intervals.Interval
	for _, c := range x.collectives {
		list = append(list, intervals.Interval{Start: c.Start, End: c.End})
	}
	return float64(union(list).Length()) * 1e-9
}

func table(b *strings.Builder, job []*profile, arrivals map[int64]straggler.Arrival) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "RANK\tSTEP\tOWN\tCOMPUTING\tCOMMUNICATING\tLAST AT\tWAITED\tHELD OTHERS UP\t  FILE")
	for _, x := range job {
		step, own := "-", "-"
		if x.steps > 0 {
			step, own = seconds(x.stepTime/float64(x.steps)), seconds(x.own())
		}
		last, waited, held := "-", "-", "-"
		if a, ok := arrivals[x.rank]; ok {
			last, waited, held = fmt.Sprintf("%d of %d", a.Last, a.Collectives), seconds(a.Waited), seconds(a.HeldUp)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", x.rank, step, own,
			seconds(float64(union(x.compute).Length())*1e-9),
			seconds(x.communication()), last, waited, held, printable.Line(filepath.Base(x.file)))
	}
	_ = w.Flush() // a strings.Builder takes everything
}

// seconds writes a time with three significant digits.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case math.Abs(s) >= 1:
		return fmt.Sprintf("%.2f s", s)
	case math.Abs(s) >= 1e-3:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.0f µs", s*float64(time.Second/time.Microsecond))
}
