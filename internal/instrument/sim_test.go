// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
)

var grid = flag.Bool("grid", false, "print the whole table of instruments")

const (
	settle  = 6.0  // s, as the default of gpu_join
	maxWait = 10.0 // s
)

var lengths = []float64{.003, .02, .1, .5, 2, 5, 20, 60}

// outcome is one span of a simulated device.
type outcome struct{ truth, energy, bound, before, beforeError float64 }

func (o outcome) err() float64    { return math.Abs(o.energy - o.truth) }
func (o outcome) stated() float64 { return max(o.bound, .05*o.energy) }
func (o outcome) omitted() bool   { return !(o.bound <= o.energy) }
func (o outcome) inside() bool    { return o.err() <= o.stated() }
func ns(s float64) int64          { return int64(1e18) + int64(math.Round(s*1e9)) }
func dur(s float64) time.Duration { return time.Duration(s * 1e9) }
func percent(n, of int) float64   { return 100 * float64(n) / float64(max(of, 1)) }
func at(x []float64, p int) float64 {
	if len(x) == 0 {
		return 0
	}
	return x[min(len(x)*p/100, len(x)-1)]
}

// without are readings that a device lacks.
type without int

const (
	nothing without = iota
	noPower
	noCounter
)

// replay reads a simulated device as gpu_join does, and returns the spans of each length.
func replay(spec *instrumenttest.Spec, kind string, seed uint64, spans int, lack without, lengths []float64) [][]outcome {
	rng := rand.New(rand.NewPCG(seed, 7))
	length := spec.Length()
	truth := instrumenttest.NewTruth(kind, dur(length), rng)
	list := spec.Readings(truth, rng)
	settle, maxWait := cmp.Or(spec.Settle, settle), cmp.Or(spec.MaxWait, maxWait)
	e := NewEnergy(Config{Settle: dur(settle), Assumed: dur(spec.Assumed), Window: dur(spec.Window)})
	type span struct{ s, e, which int64 }
	var todo []span
	for i, l := range lengths {
		for range spans {
			s := length*.25 + rng.Float64()*(length*.65-l)
			if spec.Early > 0 {
				s = list[0].Time + rng.Float64()*spec.Early
			}
			if length*.65 > l {
				todo = append(todo, span{ns(s), ns(s + l), int64(i)})
			}
		}
	}
	slices.SortFunc(todo, func(a, b span) int { return int(a.e - b.e) })
	out := make([][]outcome, len(lengths))
	sec := func(t int64) float64 { return float64(t-int64(1e18)) * 1e-9 }
	var last instrumenttest.Reading
	settled := ns(0)
	var read int64
	for i, r := range list {
		if len(todo) == 0 {
			break
		}
		e.Settle(settled)
		if lack != noCounter {
			if i == 0 || r.Energy > last.Energy {
				c := Change{Time: ns(r.Time), Value: r.Energy, Covered: i > 0}
				if i > 0 {
					c.Since = ns(last.Time)
				}
				e.AddChange(c)
			}
			read = ns(r.Time)
		}
		if lack != noPower {
			e.AddPower(ns(r.Time), r.Power)
		}
		last = r
		e.Advance(read)
		ready, _ := e.Ready()
		settled = max(settled, min(ready, ns(r.Time-settle)), ns(r.Time-maxWait))
		for len(todo) > 0 && todo[0].e <= settled {
			x := todo[0]
			todo = todo[1:]
			energy := e.Energy(x.s, x.e)
			bound := e.Bound(x.s, x.e, energy)
			if knots := e.Knots(x.s, x.e, nil); knots[len(knots)-1].Covered < x.e-x.s {
				bound = math.Inf(1)
			}
			out[x.which] = append(out[x.which], outcome{
				truth.At(sec(x.e)) - truth.At(sec(x.s)), energy, bound, 0, 0,
			})
			o := &out[x.which][len(out[x.which])-1]
			o.before, o.beforeError = interpolated(list, sec(x.s), sec(x.e))
		}
	}
	return out
}

// interpolated returns the energy of a span and its stated error as they were before instruments
// were modeled: energy is linear between readings, and its error is of the power that the readings
// around the span's ends leave possible.
func interpolated(list []instrumenttest.Reading, s, e float64) (energy, stated float64) {
	const limit, slack = 700, .1 // W; of the sensor
	after := func(t float64) int {
		return min(max(sort.Search(len(list), func(i int) bool { return list[i].Time > t }), 1), len(list)-1)
	}
	value := func(i int, t float64) float64 {
		a, b := list[i-1], list[i]
		return a.Energy + (b.Energy-a.Energy)*(t-a.Time)/(b.Time-a.Time)
	}
	of := func(i int, s, e float64) float64 { // the error of [s, e] between two readings
		a, b := list[i-1], list[i]
		inside, length := e-s, b.Time-a.Time
		low, high, counted := min(a.Power, b.Power), max(a.Power, b.Power), b.Energy-a.Energy
		switch mean := counted / length; {
		case mean > high*(1+slack):
			high = max(mean, limit)
		case mean < low*(1-slack):
			low = 0
		default:
			low, high = min(low, mean), max(high, mean)
		}
		estimate := value(i, e) - value(i, s)
		return max(estimate-max(low*inside, counted-high*(length-inside)), min(high*inside, counted-low*(length-inside))-estimate, 0)
	}
	i, j := after(s), after(e)
	if i == j {
		stated = of(i, s, e)
	} else {
		stated = of(i, s, list[i].Time) + of(j, list[j-1].Time, e)
	}
	energy = value(j, e) - value(i, s)
	return energy, max(stated, .05*energy)
}

// table simulates all instruments.
func table(lengths []float64, seeds, spans int, lack without, row func(spec *instrumenttest.Spec, list []summary)) {
	tableOf(instrumenttest.Specs, lengths, seeds, spans, lack, row)
}

func tableOf(
	specs []instrumenttest.Spec, lengths []float64, seeds, spans int, lack without,
	row func(spec *instrumenttest.Spec, list []summary),
) {
	for i := range specs {
		spec := &specs[i]
		all := make([][]outcome, len(lengths))
		for k, kind := range instrumenttest.Kinds {
			for seed := range seeds {
				for j, o := range replay(spec, kind, uint64(1000*i+100*k+seed), spans, lack, lengths) {
					all[j] = append(all[j], o...)
				}
			}
		}
		var list []summary
		for _, o := range all {
			list = append(list, summarize(o))
		}
		row(spec, list)
	}
}

func TestGrid(t *testing.T) {
	if !*grid {
		t.Skip("-grid")
	}
	lack := map[string]without{"": nothing, "b": noPower, "d": noCounter}[os.Getenv("LACK")]
	fmt.Printf("%-34s %7s %6s %6s %6s %6s %6s %6s\n", "instrument", "length", "inside", "omit", "in5", "p95", "r95", "med")
	table(lengths, 4, 100, lack, func(spec *instrumenttest.Spec, list []summary) {
		for j, s := range list {
			fmt.Printf("%-34s %7.3f %6.1f %6.1f %6.1f %5.1f%% %6.2f %6.2f\n", spec.Name, lengths[j], s.inside, s.omitted,
				s.within5, s.p95, s.ratio, s.median)
		}
	})
}

// The true energy is inside the stated error for at least 95 % of the spans of each instrument and
// length, up to the noise of a sample, and the median of the stated error is no multiple of the
// real one.
func TestTheStatedErrorHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, lack := range []without{nothing, noPower, noCounter} {
		table([]float64{.02, .5, 5}, 2, 60, lack, func(spec *instrumenttest.Spec, list []summary) {
			for j, s := range list {
				if s.omitted > 60 { // too few are left to judge
					continue
				}
				if s.inside < 90 {
					t.Errorf("%s, lack %d, length %d: %.1f %% inside", spec.Name, lack, j, s.inside)
				}
				if lack == nothing && s.median > 6 {
					t.Errorf("%s, length %d: the median stated error is %.1f times the 95th percentile of the real one", spec.Name, j,
						s.median)
				}
			}
		})
	}
}

var update = flag.Bool("update", false, "write the tables of docs/energy.md and docs/kubernetes.md")

//go:generate go test -run TestGenerated -update .

func TestGeneratedTableOfErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	text := "| counter refreshed, read | 10 ms | 100 ms | 1 s | 10 s |\n|---|--:|--:|--:|--:|\n"
	changes := "| counter refreshed, read | 100 ms | 1 s |\n|---|---|---|\n"
	table([]float64{.01, .1, 1, 10}, 2, 100, nothing, func(spec *instrumenttest.Spec, list []summary) {
		text += row(spec, list)
		changes += "| " + spec.Name + " |"
		for _, s := range list[1:3] {
			if changes += fmt.Sprintf(" %.0f, %.0f, ± %.0f;", s.before, s.beforeInside, s.beforeStated); s.omitted > 90 {
				changes += " omitted |"
			} else {
				changes += fmt.Sprintf(" %.0f, %.0f, ± %.0f |", s.within5, s.inside, s.stated)
			}
		}
		changes += "\n"
	})
	generate(t, "energy.md", "errors", text)
	generate(t, "energy.md", "changes", changes)
}

// row formats the errors and the shares of omitted values of an instrument.
func row(spec *instrumenttest.Spec, list []summary) string {
	text := "| " + spec.Name + " |"
	for _, s := range list {
		if s.omitted > 90 {
			text += " omitted |"
		} else {
			text += fmt.Sprintf(" ± %.0f %% (%.0f %%) |", math.Ceil(s.p95), s.omitted)
		}
	}
	return text + "\n"
}

// generate compares a table of a document with a text, or writes it.
func generate(t *testing.T, document, table, text string) {
	t.Helper()
	begin, end := "<!-- "+table+" begin (go test ./internal/instrument -update) -->\n", "<!-- "+table+" end -->"
	path := filepath.Join("..", "..", "docs", document)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	_, after, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatal("no marks")
	}
	want := before + begin + text + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(b) {
		t.Errorf("docs/%s differs from the simulation (run go generate ./internal/instrument)", document)
	}
}

type summary struct {
	inside, omitted, within5, p95, ratio, median, stated float64
	before, beforeInside, beforeStated                   float64
}

func summarize(list []outcome) (s summary) {
	var errs, bounds, beforeBounds []float64
	in, omitted, within, before, beforeIn := 0, 0, 0, 0, 0
	for _, o := range list {
		off := math.Abs(o.before - o.truth)
		if off <= .05*o.truth {
			before++
		}
		if off <= o.beforeError {
			beforeIn++
		}
		beforeBounds = append(beforeBounds, o.beforeError/o.truth)
		if o.omitted() {
			omitted++
			continue
		}
		if o.inside() {
			in++
		}
		if o.err() <= .05*o.truth {
			within++
		}
		errs = append(errs, o.err()/o.truth)
		bounds = append(bounds, o.bound/o.truth)
	}
	slices.Sort(errs)
	slices.Sort(bounds)
	slices.Sort(beforeBounds)
	p := max(at(errs, 95), .05/3)
	return summary{
		percent(in, len(errs)), percent(omitted, len(list)), percent(within, len(errs)), 100 * at(errs, 95),
		at(bounds, 95) / p, at(bounds, 50) / p, 100 * max(at(bounds, 50), .05),
		percent(before, len(list)), percent(beforeIn, len(list)), 100 * at(beforeBounds, 50),
	}
}
