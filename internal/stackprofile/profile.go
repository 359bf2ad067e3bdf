// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Type is the unit of a profile's values.
type Type int

// Types of values.
const (
	Time   Type = iota // ns
	Energy             // µJ
	IdleTime
	types
)

// Types returns all types.
func Types() []Type { return []Type{Time, Energy, IdleTime} }

var typeNames = [types]string{"gpu_time", "gpu_energy", "gpu_idle"}

// String returns the type's name on the wire.
func (t Type) String() string { return typeNames[t] }

// Unit returns the unit of the values, as profiles name it.
func (t Type) Unit() string {
	if t == Energy {
		return "microjoules"
	}
	return "nanoseconds"
}

// TypeOf returns the type of a name.
func TypeOf(name string) (Type, bool) {
	i := slices.Index(typeNames[:], name)
	return Type(i), i >= 0
}

// Profile is the samples of one source in one window.
type Profile struct {
	Source     Source
	Start, End uint64 // unix ns
	start, end uint64 // of its values, if there is one window for all
	samples    map[sampleKey]*Sample
}

type sampleKey struct {
	stack  *Stack
	labels *Labels
}

// Sample is the values of one stack with the same labels.
type Sample struct {
	Stack  *Stack
	Labels *Labels
	Values [types]float64 // in the order of Types
	Link   spanfacts.Key  // the slowest span; zero: its ID is not known

	slowest int64
}

func (s *Sample) add(time, energy float64, x *span) {
	s.Values[Time] += time
	s.Values[Energy] += energy
	s.keep(x.time, x.key.In(x.process))
}

func (s *Sample) addIdle(length uint64, before spanfacts.Key) {
	s.Values[IdleTime] += float64(length)
	s.keep(int64(length), before)
}

// keep links to a span if it is the slowest.
func (s *Sample) keep(length int64, k spanfacts.Key) {
	if length = max(length, 1); length > s.slowest && !k.Span.IsEmpty() {
		s.slowest, s.Link = length, k
	}
}

// Samples returns the samples in a fixed order.
func (p *Profile) Samples() []*Sample {
	list := make([]*Sample, 0, len(p.samples))
	for _, s := range p.samples {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Sample) int {
		return cmp.Or(compare(a.Stack, b.Stack), compareLabels(a.Labels, b.Labels), slices.Compare(a.Values[:], b.Values[:]))
	})
	return list
}

func compare(a, b *Stack) int {
	if a == b {
		return 0
	}
	x, y := a, b
	for x.depth > y.depth {
		x = x.Up
	}
	for y.depth > x.depth {
		y = y.Up
	}
	order := 0
	for ; x != nil && x != y; x, y = x.Up, y.Up { // the difference nearest to the root counts
		if d := cmp.Or(cmp.Compare(x.Frame.Name, y.Frame.Name), cmp.Compare(x.Frame.Full, y.Frame.Full),
			cmp.Compare(x.Frame.Kind, y.Frame.Kind)); d != 0 {
			order = d
		}
	}
	return cmp.Or(order, cmp.Compare(a.depth, b.depth))
}

func compareLabels(a, b *Labels) int {
	return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Phase, b.Phase),
		cmp.Compare(a.Model, b.Model), cmp.Compare(a.Throttle, b.Throttle), cmp.Compare(a.State, b.State))
}

// window is the profiles of one window.
type window struct {
	profiles map[Source]*Profile
	samples  int
	last     *Profile // found last, of lastOf
	lastOf   *Source
}

const (
	maxSources = 1000 // profiles of a window
	maxWindows = 1000 // between two calls of Take
)

// profile returns the profile of a time, in unix ns, and source.
func (b *Builder) profile(at uint64, src *Source) *Profile {
	length := uint64(b.opts.Window)
	start := uint64(0)
	if length > 0 {
		start = at - at%length
	}
	w := b.windows[start]
	if w == nil && len(b.windows) >= maxWindows {
		// Senders with arbitrary clocks must not use memory without limit: the window of the latest
		// time holds the values of further ones.
		b.stats.Overflow++
		if b.windows[b.latest] == nil {
			b.latest = 0
			for known := range b.windows {
				b.latest = max(b.latest, known)
			}
		}
		start = b.latest
		w = b.windows[start]
	}
	if w == nil {
		w = &window{profiles: map[Source]*Profile{}}
		b.windows[start] = w
		b.latest = max(b.latest, start)
	}
	if w.lastOf == src {
		return w.last
	}
	key := *src
	p := w.profiles[key]
	if p == nil && len(w.profiles) >= maxSources {
		key = Source{Service: "(other services)"}
		p = w.profiles[key]
	}
	if p == nil {
		p = &Profile{
			Source: key, Start: start, End: start + length, start: ^uint64(0), samples: map[sampleKey]*Sample{},
		}
		w.profiles[key] = p
	}
	w.last, w.lastOf = p, src
	return p
}

func (p *Profile) extend(s *span) {
	p.start, p.end = min(p.start, s.start), max(p.end, s.end)
}

// otherStacks is the frame of the values beyond a limit on stacks.
const otherStacks = "(other stacks)"

// sample returns the sample of a stack, or the sample of all other stacks if there are too many.
func (b *Builder) sample(p *Profile, stack *Stack, l *Labels) *Sample {
	if s := p.samples[sampleKey{stack, l}]; s != nil {
		return s
	}
	start := uint64(0)
	if b.opts.Window > 0 {
		start = p.Start
	}
	w := b.windows[start]
	if w.samples >= b.opts.MaxStacks {
		b.stats.Overflow++
		stack = b.child(b.rootOf(b.source(p.Source)), b.frame(Range, otherStacks, ""))
		l = b.labelled(Labels{Rank: -1})
		if s := p.samples[sampleKey{stack, l}]; s != nil {
			return s
		}
	}
	w.samples++
	s := &Sample{Stack: stack, Labels: l}
	p.samples[sampleKey{stack, l}] = s
	return s
}

// Take removes and returns the profiles of windows that ended at or before a time in unix
// nanoseconds, in the order of time and service. Later values are in a further profile of the same
// window. With one window for all, every profile is returned.
func (b *Builder) Take(before int64) (list []*Profile) {
	for start, w := range b.windows {
		if b.opts.Window > 0 && start+uint64(b.opts.Window) > uint64(max(0, before)) {
			continue
		}
		for _, p := range w.profiles {
			if b.opts.Window == 0 && p.start < p.end {
				p.Start, p.End = p.start, p.end
			}
			list = append(list, p)
		}
		delete(b.windows, start)
	}
	sortProfiles(list)
	return list
}

func sortProfiles(list []*Profile) {
	slices.SortFunc(list, func(a, b *Profile) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Source.Service, b.Source.Service),
			cmp.Compare(a.Source.Namespace, b.Source.Namespace), cmp.Compare(a.Source.Version, b.Source.Version))
	})
}

// Totals returns the sums over all samples of profiles, in the order of Types.
func Totals(list []*Profile) (sum [types]float64) {
	for _, p := range list {
		for _, s := range p.samples {
			for i, v := range s.Values {
				sum[i] += v
			}
		}
	}
	return sum
}

// rounding converts values to whole numbers whose sum is the rounded sum of the values.
type rounding struct{ exact, given float64 }

func (r *rounding) next(v float64) int64 {
	r.exact = min(r.exact+v, math.MaxInt64/2) // readers sum the values, too
	n := round(r.exact - r.given)
	r.given += float64(n)
	return n
}
