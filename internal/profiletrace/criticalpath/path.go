// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package criticalpath

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
)

// Path is the critical paths of the steps of one process, summed up. Its JSON has durations in ns;
// sums over all steps are divided by Steps for the mean.
type Path struct {
	Process int64         `json:"process,omitempty"`
	Steps   int64         `json:"steps,omitempty"` // 0: the profile has none, and is one path
	Length  time.Duration `json:"length_ns"`       // of all steps
	Kinds   []KindTime    `json:"kinds"`           // the longest first; they add up to Length
	// Parts are what takes most of the path, the largest gain first; with Rest, of the MoreParts,
	// they add up to Length. Where another path is nearly as long, less than the gain can be saved.
	Parts     []Part        `json:"parts"`
	MoreParts int           `json:"moreParts,omitempty"`
	Rest      time.Duration `json:"rest_ns,omitempty"`
	Median    Step          `json:"median"` // the step of median length, or one of nearly that
	// waits of one stream for another on the paths: by statements of the profile, and by times
	Stated   int64 `json:"stated_waits,omitempty"`
	Inferred int64 `json:"inferred_waits,omitempty"`
	Dropped  int64 `json:"dropped_activities,omitempty"`
	Merged   int64 `json:"merged_ranges,omitempty"` // on the host: short ranges that count for a neighbor
}

// KindTime is the time of one kind of segment.
type KindTime struct {
	Kind Kind          `json:"kind"`
	Time time.Duration `json:"time_ns"`
}

// Part is all segments of a kind with one name; of the host, on one thread.
type Part struct {
	Kind  Kind          `json:"kind"`
	Name  string        `json:"name,omitempty"`
	Lane  string        `json:"lane,omitempty"` // thread of the host
	Count int64         `json:"count"`          // of segments
	Time  time.Duration `json:"time_ns"`
	// Gain is what the steps would be shorter by at most if the part took no time: of a part that
	// is no activity of a device, the time in which no activity ran.
	Gain time.Duration `json:"gain_ns"`
}

// Step is the path of one step.
type Step struct {
	Name   string        `json:"name,omitempty"`
	Start  int64         `json:"start_unix_ns"`
	Length time.Duration `json:"length_ns"`
	Lanes  []string      `json:"lanes"`
	Names  []string      `json:"names"`
	// Segments are drawn from left to right, without breaks: for each its length in ns, its kind,
	// and the numbers of its lane and name. Segments that are shorter than Shortest are part of a
	// neighbor.
	Segments [][4]int64    `json:"segments"`
	Shortest time.Duration `json:"shortest_ns,omitempty"`
	Longest  []Longest     `json:"longest"` // segments
}

// Longest is one of the longest segments of a step.
type Longest struct {
	Kind Kind          `json:"kind"`
	Name string        `json:"name,omitempty"`
	Lane string        `json:"lane,omitempty"`
	At   time.Duration `json:"at_ns"` // since the step's start
	Time time.Duration `json:"time_ns"`
}

var kinds = [kindCount]string{
	"host", "launch_delay", "kernel", "communication", "copy", "queue_delay", "unexplained", "not_recorded",
}

var kindsForPeople = [kindCount]string{
	"host", "launch delay", "kernels", "communication", "copies", "delay between queued work",
	"not explained", "not recorded",
}

// String returns the kind as in JSON.
func (k Kind) String() string { return kinds[k] }

// ForPeople returns the kind in sentences.
func (k Kind) ForPeople() string { return kindsForPeople[k] }

// MarshalText writes the kind as String.
func (k Kind) MarshalText() ([]byte, error) { return []byte(kinds[k]), nil }

// UnmarshalText reads what MarshalText writes.
func (k *Kind) UnmarshalText(text []byte) error {
	i := slices.Index(kinds[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no kind of segment", text)
	}
	*k = Kind(i)
	return nil
}

// Mean returns a time of all steps for one step.
func (p *Path) Mean(t time.Duration) time.Duration { return t / time.Duration(max(1, p.Steps)) }

// Share returns which part of the path a time is, 0 to 1.
func (p *Path) Share(t time.Duration) float64 { return float64(t) / float64(max(1, p.Length)) }

// Limits of what is kept and returned.
const (
	maxKeys     = 1 << 12 // of parts
	maxParts    = 60
	maxDrawn    = 240 // segments of a step
	maxLongest  = 10
	keptSteps   = 64
	maxLengths  = 1 << 16
	finestDrawn = 4000 // of a step; shorter segments are not visible
)

type key struct {
	kind Kind
	lane uint32 // of the host only
	name uint32
}

type sum struct{ count, time, gain int64 }

type sums struct {
	Steps, Length, Dropped int64
	parts                  map[key]*sum
	kept                   []partial // steps, by length
	lengths                []int64   // of the first maxLengths steps
	scratch                scratch
}

func newSums() sums { return sums{parts: map[key]*sum{}} }

// partial is what is kept of the path of a step, or of a part of it.
type partial struct {
	name     uint32
	from, to int64
	parts    map[key]sum
	drawn    []segment // by time
	shortest int64
	longest  []segment
}

// add adds the segments of the following time, the last one first.
func (p *partial) add(list []segment, s *scratch) {
	if len(list) == 0 {
		return
	}
	if p.parts == nil {
		if p.parts = s.parts; p.parts == nil {
			p.parts = map[key]sum{}
		}
		s.parts, p.from = nil, list[len(list)-1].start
	}
	drawn := append(s.drawn[:0], p.drawn...)
	p.to = list[0].end
	for _, x := range slices.Backward(list) {
		k := key{kind: x.kind}
		switch x.kind {
		case Host:
			k.lane, k.name = x.lane, x.name
		case Kernel, Communication, Copy:
			k.name = x.name
		}
		t := p.parts[k]
		p.parts[k] = sum{t.count + 1, t.time + x.end - x.start, t.gain + x.gain}
		drawn = append(drawn, x)
	}
	s.drawn = drawn
	for _, s := range list {
		i := len(p.longest)
		for i > 0 && s.end-s.start > p.longest[i-1].end-p.longest[i-1].start {
			i--
		}
		if i < maxLongest {
			p.longest = slices.Insert(p.longest, i, s)
			p.longest = p.longest[:min(maxLongest, len(p.longest))]
		}
	}
	p.draw(drawn)
}

// scratch is memory that is used again for each step.
type scratch struct {
	drawn []segment
	parts map[key]sum // nil: in use
}

// draw merges segments that are too short to be drawn with their neighbors.
func (p *partial) draw(list []segment) {
	least := max(p.shortest, (p.to-p.from)/finestDrawn)
	for n := len(list); ; least = max(1, 2*least) {
		list = merged(list, least)
		if len(list) < n {
			p.shortest = least
		}
		if len(list) <= maxDrawn {
			break
		}
	}
	p.drawn = slices.Clone(list)
}

// merged returns the list without segments that are shorter than least: each extends the one
// before, which then is what most of it was.
func merged(list []segment, least int64) []segment {
	out := list[:0]
	own := int64(0) // part of the last one that is of its kind, lane and name
	for _, s := range list {
		n := len(out)
		length := s.end - s.start
		switch {
		case n > 0 && out[n-1].kind == s.kind && out[n-1].lane == s.lane && out[n-1].name == s.name:
			out[n-1].end = s.end
			own += length
		case n > 0 && (length < least || out[n-1].end-out[n-1].start < least):
			if length > own {
				out[n-1].kind, out[n-1].lane, out[n-1].name, own = s.kind, s.lane, s.name, length
			}
			out[n-1].end = s.end
		default:
			out = append(out, s)
			own = length
		}
	}
	return out
}

// step adds the path of a step that is complete at a time.
func (s *sums) step(st *step, list []segment, to int64) {
	p := &st.partial
	p.add(list, &s.scratch)
	p.name, p.to = st.name, to
	s.Steps++
	s.Length += p.length()
	for k, x := range p.parts {
		t := boundedmap.Bounded(s.parts, k, key{kind: k.kind, name: otherName}, maxKeys)
		t.count, t.time, t.gain = t.count+x.count, t.time+x.time, t.gain+x.gain
	}
	clear(p.parts)
	s.scratch.parts, p.parts = p.parts, nil
	if len(s.lengths) < maxLengths {
		s.lengths = append(s.lengths, p.length())
	}
	i, _ := slices.BinarySearchFunc(s.kept, p.length(), func(p partial, n int64) int { return cmp.Compare(p.length(), n) })
	if s.kept = slices.Insert(s.kept, i, *p); len(s.kept) <= keptSteps {
		return
	}
	least := 1 // whose neighbors are closest to each other, so that the kept ones represent all lengths
	apart := func(i int) int64 { return s.kept[i+1].length() - s.kept[i-1].length() }
	for i := 2; i < keptSteps; i++ {
		if apart(i) < apart(least) {
			least = i
		}
	}
	s.kept = slices.Delete(s.kept, least, least+1)
}

func (p *partial) length() int64 { return p.to - p.from }

// middle returns the kept step that is nearest to the median length.
func (s *sums) middle() *partial {
	slices.Sort(s.lengths)
	median := s.lengths[(len(s.lengths)-1)/2]
	away := func(p *partial) int64 { return max(p.length()-median, median-p.length()) }
	best := &s.kept[0]
	for i := range s.kept {
		if away(&s.kept[i]) < away(best) {
			best = &s.kept[i]
		}
	}
	return best
}

// otherName is the name of parts beyond the limit.
const otherName = ^uint32(0)

// Naming returns the names of numbers.
type Naming struct {
	Range, Kernel, Thread, Stream func(uint32) string
	Base                          int64 // unix ns of time 0
}

// Path returns the sums, after all activities; nil without any step.
func (r *Recorder) Path(n *Naming) *Path {
	if r.whole && r.steps[0].last > r.steps[0].end || !r.whole && len(r.steps) > 0 {
		r.finish(len(r.steps))
	}
	s := &r.sums
	if s.Steps == 0 {
		return nil
	}
	p := &Path{
		Steps: s.Steps, Length: time.Duration(s.Length), Stated: r.walk.stated, Inferred: r.walk.inferred, Dropped: s.Dropped,
	}
	if r.whole {
		p.Steps = 0
	}
	for _, h := range r.threads {
		p.Merged += h.Merged
	}
	p.list(s, func(k key) (name, lane string) { return r.names(n, k) })
	p.Median = r.median(n)
	return p
}

func (p *Path) list(s *sums, names func(key) (name, lane string)) {
	var byKind [kindCount]time.Duration
	type identity struct {
		kind       Kind
		name, lane string
	}
	all := map[identity]*Part{}
	for k, x := range s.parts {
		byKind[k.kind] += time.Duration(x.time)
		name, lane := names(k)
		part := boundedmap.Of(all, identity{k.kind, name, lane})
		*part = Part{
			k.kind, name, lane, part.Count + x.count, part.Time + time.Duration(x.time), part.Gain + time.Duration(x.gain),
		}
	}
	for k, t := range byKind {
		if t > 0 {
			p.Kinds = append(p.Kinds, KindTime{Kind(k), t})
		}
	}
	slices.SortStableFunc(p.Kinds, func(a, b KindTime) int { return cmp.Compare(b.Time, a.Time) })
	for _, x := range all {
		p.Parts = append(p.Parts, *x)
	}
	slices.SortFunc(p.Parts, func(a, b Part) int {
		return cmp.Or(cmp.Compare(b.Gain, a.Gain), cmp.Compare(b.Time, a.Time),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Lane, b.Lane))
	})
	p.Parts, p.MoreParts, p.Rest = Most(p.Parts, maxParts, p.MoreParts, p.Rest)
}

// Most returns the first n parts, how many more there are, and their time.
func Most(list []Part, n, more int, rest time.Duration) ([]Part, int, time.Duration) {
	n = min(n, len(list))
	for i := range list[n:] {
		rest += list[n+i].Time
	}
	return list[:n], more + len(list) - n, rest
}

// Within returns the path with at most this many parts, segments and longest segments; it shares no
// list with p that it changes.
func (p *Path) Within(parts, segments, longest int) *Path {
	out := *p
	out.Parts, out.MoreParts, out.Rest = Most(p.Parts, parts, p.MoreParts, p.Rest)
	out.Median.Longest = p.Median.Longest[:min(longest, len(p.Median.Longest))]
	out.Median.coarser(segments)
	return &out
}

// coarser merges the shortest segments with their neighbors until there are at most n.
func (s *Step) coarser(n int) {
	if len(s.Segments) <= max(1, n) {
		return
	}
	list := make([]segment, 0, len(s.Segments))
	at := int64(0)
	for _, x := range s.Segments {
		list = append(list, segment{start: at, end: at + x[0], kind: Kind(x[1]), lane: uint32(x[2]), name: uint32(x[3])})
		at += x[0]
	}
	least := max(1, int64(s.Shortest))
	for len(list) > max(1, n) {
		least *= 2
		list = merged(list, least)
	}
	lanes, names := s.Lanes, s.Names
	s.Shortest, s.Lanes, s.Names, s.Segments = time.Duration(least), []string{}, []string{}, nil
	for _, x := range list {
		s.Segments = append(s.Segments, [4]int64{
			x.end - x.start, int64(x.kind), numberOf(&s.Lanes, lanes[x.lane]), numberOf(&s.Names, names[x.name]),
		})
	}
}

// numberOf returns the index of a text in a list, to which it is added if it is not there.
func numberOf(list *[]string, text string) int64 {
	i := slices.Index(*list, text)
	if i < 0 {
		i = len(*list)
		*list = append(*list, text)
	}
	return int64(i)
}

// Names of what has none.
const (
	noRange = "no named range"
	others  = "others"
)

func (r *Recorder) names(n *Naming, k key) (name, lane string) {
	switch {
	case k.name == otherName:
		name = others
	case k.kind == Host:
		return cmp.Or(n.Range(k.name), noRange), n.Thread(k.lane)
	case k.kind == Kernel:
		name = n.Kernel(k.name)
	case k.kind == Communication, k.kind == Copy:
		name = r.labels[k.name]
	}
	return name, ""
}

// lane returns the name of the row in which a segment is drawn.
func (n *Naming) lane(s *segment) string {
	if s.kind == Host || s.kind == NotRecorded {
		return n.Thread(s.lane)
	}
	return n.Stream(s.lane)
}

// median returns the step of median length.
func (r *Recorder) median(n *Naming) Step {
	kept := r.sums.middle()
	st := Step{
		Name: n.Range(kept.name), Start: n.Base + kept.from, Length: time.Duration(kept.length()),
		Shortest: time.Duration(kept.shortest), Lanes: []string{}, Names: []string{},
	}
	for i := range kept.drawn {
		x := &kept.drawn[i]
		name, _ := r.names(n, key{x.kind, x.lane, x.name})
		st.Segments = append(st.Segments, [4]int64{
			x.end - x.start, int64(x.kind), numberOf(&st.Lanes, n.lane(x)), numberOf(&st.Names, name),
		})
	}
	for i := range kept.longest {
		x := &kept.longest[i]
		name, _ := r.names(n, key{x.kind, x.lane, x.name})
		st.Longest = append(st.Longest, Longest{
			x.kind, name, n.lane(x), time.Duration(x.start - kept.from), time.Duration(x.end - x.start),
		})
	}
	return st
}
