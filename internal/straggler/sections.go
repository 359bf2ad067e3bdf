// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

const (
	// maxNames bounds the sections directly in one, maxDepth the levels; further ones are dropped.
	maxNames, maxDepth = 64, 16
	// explains is the minimum share of a section's delay that one section in it must have to be
	// named with it.
	explains = 0.5
	// separator separates a section from the one in it.
	separator = "/"
	// Other is the section for the part of a step that is in no phase.
	Other = "other"
)

// Extent is from the start of the first run to the end of the last, unix ns. Zero: not known.
type Extent struct{ Start, End uint64 }

func (x *Extent) join(y Extent) {
	switch {
	case y.End <= y.Start:
	case x.Start == 0:
		*x = y
	default:
		x.Start, x.End = min(x.Start, y.Start), max(x.End, y.End)
	}
}

// Section are the runs of one name in a step or in a section, and the sections inside.
type Section struct {
	Name, Category string
	Duration       float64 // s, of all runs
	At             Extent
	Below          *Sections // nil: nothing is known
}

// Sections are the sections in a step or in a section, by name. At most 64 names and 16 levels are
// kept. Nil is empty.
type Sections struct {
	list   []*Section
	height int // levels; at most maxDepth
}

// All returns the sections in the order of their arrival.
func (p *Sections) All() []*Section {
	if p == nil {
		return nil
	}
	return p.list
}

// Find returns the section of a name, or nil.
func (p *Sections) Find(name string) *Section {
	for _, x := range p.All() {
		if x.Name == name {
			return x
		}
	}
	return nil
}

// Size returns the number of sections at all levels.
func (p *Sections) Size() (n int) {
	for _, x := range p.All() {
		n += 1 + x.Below.Size()
	}
	return n
}

// Add adds runs of one name and the sections inside, which it then owns. The result is the change
// of the size.
func (p *Sections) Add(name, category string, duration float64, at Extent, below *Sections) (grown int) {
	if below != nil {
		below.cut(maxDepth - 1)
	}
	x := p.Find(name)
	if x == nil {
		if len(p.list) >= maxNames {
			return 0
		}
		x = &Section{Name: name, Category: category}
		p.list = append(p.list, x)
		grown = 1
	}
	x.Duration += duration
	x.At.join(at)
	switch {
	case below == nil:
	case x.Below == nil:
		x.Below = below
		grown += below.Size()
	default:
		grown += x.Below.Join(below)
	}
	p.height = max(p.height, 1)
	if x.Below != nil {
		p.height = max(p.height, x.Below.height+1)
	}
	return grown
}

// Join adds all of q. The result is the change of the size.
func (p *Sections) Join(q *Sections) (grown int) {
	for _, x := range q.All() {
		grown += p.Add(x.Name, x.Category, x.Duration, x.At, x.Below)
	}
	return grown
}

// cut drops sections deeper than a number of levels.
func (p *Sections) cut(levels int) {
	if p.height <= levels {
		return
	}
	p.height = levels
	for _, x := range p.list {
		switch {
		case x.Below == nil:
		case levels == 1:
			x.Below = nil
		default:
			x.Below.cut(levels - 1)
		}
	}
}

// Divide puts the sections below a step into its phases, and returns the sections outside of
// phases. A section that is a phase has its name; a section that has it as its category is in it. A
// phase keeps the time that the step states.
func (p *Sections) Divide(below *Sections) (loose *Sections) {
	if below == nil {
		return nil
	}
	loose = &Sections{}
	for _, x := range below.list {
		switch phase := p.Find(x.Category); {
		case phase == nil:
			loose.Add(x.Name, x.Category, x.Duration, x.At, x.Below)
		case x.Name == phase.Name:
			p.Add(phase.Name, "", 0, x.At, x.Below)
		default:
			in := &Sections{}
			in.Add(x.Name, x.Category, x.Duration, x.At, x.Below)
			p.Add(phase.Name, "", 0, x.At, in)
		}
	}
	return loose
}

// blame returns the section in which a rank is furthest above the median of the ranks: from the
// phases, and the operations directly below the step outside of phases, down to the deepest one
// that explains most of the delay.
func (v *Result) blame(phases, loose *level, rank int) {
	at := phases
	worst, delay := phases.furthest(rank)
	if x, d := loose.furthest(rank); d > delay {
		at, worst, delay = loose, x, d
	} else if worst != nil && worst.Name != Other {
		v.Phase = worst.Name
	}
	for worst != nil {
		if v.Section != "" {
			v.Section += separator
		}
		v.Section, v.Delay, v.At = v.Section+worst.Name, delay, worst.At
		at = at.inside(worst.Name)
		next, d := at.furthest(rank)
		if d < explains*delay {
			break
		}
		worst, delay = next, d
	}
}

// level holds the sections of all ranks in one section. What is computed for one late rank is
// cached for the others.
type level struct {
	ranks     []*Sections          // nil: nothing is known
	known     int                  // of the ranks
	durations map[string][]float64 // of the ranks that have a section
	medians   map[string]float64
	below     map[string]*level
}

func newLevel(ranks []*Sections) *level {
	l := &level{
		ranks: ranks, durations: map[string][]float64{}, medians: map[string]float64{}, below: map[string]*level{},
	}
	for _, s := range ranks {
		if s == nil {
			continue
		}
		l.known++
		for _, x := range s.list {
			l.durations[x.Name] = append(l.durations[x.Name], x.Duration)
		}
	}
	return l
}

// furthest returns the section of a rank that is furthest above the median; nil if all are below.
func (l *level) furthest(rank int) (worst *Section, delay float64) {
	for _, x := range l.ranks[rank].All() {
		if d := x.Duration - l.median(x.Name); d > delay {
			worst, delay = x, d
		}
	}
	return worst, delay
}

// median returns the median over the ranks with any value at the level; one without the section
// spent nothing in it.
func (l *level) median(name string) float64 {
	m, known := l.medians[name]
	if !known {
		values := l.durations[name]
		m = lowMedian(append(values, make([]float64, l.known-len(values))...))
		l.medians[name] = m
	}
	return m
}

// inside returns the level in one section.
func (l *level) inside(name string) *level {
	below := l.below[name]
	if below == nil {
		ranks := make([]*Sections, len(l.ranks))
		for i, s := range l.ranks {
			if x := s.Find(name); x != nil {
				ranks[i] = x.Below
			}
		}
		below = newLevel(ranks)
		l.below[name] = below
	}
	return below
}
