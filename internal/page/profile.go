// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/stacks"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// MaxProfiles is how many profiles a report has. Further ones are counted.
const MaxProfiles = 64

// Limits of the lists in a report; what is beyond is counted.
const (
	shownKernels     = 300
	shownOperators   = 300
	shownCollectives = 100
	shownTransfers   = 100
	shownProfileStep = 400
	shownChanges     = 200
)

// Profile is one profiler's file, or one recording of a process.
type Profile struct {
	Name    string         `json:"name"`
	Rank    int64          `json:"rank"` // -1: not stated
	World   int64          `json:"world,omitempty"`
	Devices []DeviceReport `json:"devices"`
	// where the host was, of a profile without activities of a device
	Host *finding.Finding `json:"host,omitempty"`
	// of such a profile: steps, and operators by their own time
	HostSteps     []HostStep `json:"hostSteps,omitempty"`
	HostOperators []HostTime `json:"hostOperators,omitempty"`

	Remarks  []string  `json:"remarks,omitempty"`
	Timeline *Timeline `json:"timeline,omitempty"`
	// the critical paths of steps, by process
	Paths []*criticalpath.Path `json:"paths,omitempty"`

	timeline *timeline
	rows     *rows
	whole    bool // it was read to its end
}

// DeviceReport is the work of a device in a profile. Durations are ns, as in the report of the
// analysis.
type DeviceReport struct {
	facts.Report
	Roof            *Roof `json:"roof,omitempty"` // of its model
	MoreKernels     int   `json:"moreKernels,omitempty"`
	MoreOperators   int   `json:"moreOperators,omitempty"`
	MoreCollectives int   `json:"moreCollectives,omitempty"`
	MoreSteps       int   `json:"moreSteps,omitempty"`
	MoreFindings    int   `json:"moreFindings,omitempty"`
	MoreTransfers   int   `json:"moreTransfers,omitempty"`
}

// Comparison is what changed between two profiles.
type Comparison struct {
	facts.Comparison
	Names         [2]string `json:"names"`
	MoreOperators int       `json:"moreOperators,omitempty"`
	MoreKernels   int       `json:"moreKernels,omitempty"`
}

// Book collects a report on profiles: what an observer of each gets, and the results of their
// analysis. Profiles that were observed only could not be read, and are not included. It is not
// safe for concurrent use.
type Book struct {
	profiles []*Profile
	more     int // profiles beyond the limit; Stacks has theirs
	stacks   *stackprofile.Total
	observed map[string]*stacks.Recorder // until the profile is complete
}

// NewBook returns an empty report.
func NewBook() *Book {
	return &Book{stacks: stackprofile.NewTotal(), observed: map[string]*stacks.Recorder{}}
}

func (b *Book) profile(name string) *Profile {
	for _, p := range slices.Backward(b.profiles) {
		if p.Name == name {
			return p
		}
	}
	if len(b.profiles) >= MaxProfiles {
		return nil
	}
	p := &Profile{Name: name, Rank: -1, Devices: []DeviceReport{}, timeline: newTimeline()}
	b.profiles = append(b.profiles, p)
	return p
}

// Observe returns the observer of a profile.
func (b *Book) Observe(name string, in *link.Input) link.Observer {
	b.observed[name] = stacks.New(in)
	all := link.Observers{b.observed[name]}
	if p := b.profile(name); p != nil {
		p.Rank, p.World = in.Rank()
		p.rows = &rows{
			in: in, timeline: p.timeline, tracks: in.Tracks(), names: make([]rowName, in.Names.Len()),
			host: hostTimes{names: map[uint32]*HostTime{}, open: map[uint32][]openRange{}},
		}
		all = append(all, p.rows)
	}
	return all
}

// Profile adds the results of a profile's analysis: the report of each device, and irregularities.
func (b *Book) Profile(name string, devices []facts.Report, remarks []string) {
	if seen := b.observed[name]; seen != nil {
		seen.AddTo(b.stacks)
		delete(b.observed, name)
	}
	p := b.profile(name)
	if p == nil {
		b.more++
		return
	}
	p.Remarks, p.whole = remarks, true
	for _, r := range devices {
		d := DeviceReport{Report: r}
		if peak := facts.PeakOf(r.Model); peak.Known {
			if roof, ok := roofOf(r.Model, peak.Device); ok {
				d.Roof = &roof
			}
		}
		d.Operators, d.MoreOperators = most(r.Operators, shownOperators)
		d.ByKernel, d.MoreKernels = most(byName(r.ByKernel), shownKernels)
		d.Collectives, d.MoreCollectives = most(r.Collectives, shownCollectives)
		d.ByStep, d.MoreSteps = most(r.ByStep, shownProfileStep)
		d.Transfers, d.MoreTransfers = most(r.Transfers, shownTransfers)
		d.Operators, d.Findings = slices.Clone(d.Operators), slices.Clone(r.Findings)
		for i := range d.Operators {
			o := &d.Operators[i]
			o.Name, o.Shapes, o.Kernel = clip(o.Name), clip(o.Shapes), clip(o.Kernel)
		}
		d.Modules = slices.Clone(d.Modules)
		for i := range d.Modules {
			m := &d.Modules[i]
			m.Name, m.Each = clip(m.Name), slices.Clone(m.Each)
			for k := range m.Each {
				m.Each[k].Name = clip(m.Each[k].Name)
			}
		}
		for i := range d.ByKernel {
			d.ByKernel[i].Name = clip(d.ByKernel[i].Name)
		}
		p.Devices = append(p.Devices, d)
	}
}

// Host adds the result of a profile without activities of a device.
func (b *Book) Host(name string, v *finding.Finding) {
	if p := b.profile(name); p != nil {
		p.Host = v
		if r := p.rows; r != nil && v != nil {
			p.HostSteps, p.HostOperators = r.host.steps, r.host.list(r.fullName)
		}
	}
}

// Paths adds the critical paths of a profile's steps.
func (b *Book) Paths(name string, list []*criticalpath.Path) {
	p := b.profile(name)
	if p == nil {
		return
	}
	for _, x := range list {
		c := *x
		c.Parts, c.Median.Names = slices.Clone(c.Parts), slices.Clone(c.Median.Names)
		c.Median.Longest = slices.Clone(c.Median.Longest)
		for i := range c.Parts {
			c.Parts[i].Name = clip(c.Parts[i].Name)
		}
		for i := range c.Median.Names {
			c.Median.Names[i] = clip(c.Median.Names[i])
		}
		for i := range c.Median.Longest {
			c.Median.Longest[i].Name = clip(c.Median.Longest[i].Name)
		}
		p.Paths = append(p.Paths, &c)
	}
}

// byName sums kernels whose short names are the same: instances of one template.
func byName(list []facts.Kernel) []facts.Kernel {
	at := map[string]int{}
	var out []facts.Kernel
	for _, k := range list {
		i, ok := at[k.Name]
		if !ok {
			at[k.Name] = len(out)
			out = append(out, k)
			continue
		}
		o := &out[i]
		o.Count, o.Time, o.Alone, o.Rate = o.Count+k.Count, o.Time+k.Time, o.Alone+k.Alone, together(o.Rate, k.Rate)
		o.Launched.Add(&k.Launched)
	}
	slices.SortStableFunc(out, func(a, b facts.Kernel) int { return cmp.Compare(b.Time, a.Time) })
	return out
}

// together returns the rate over the time for which the work of both is known.
func together(a, b facts.Rate) facts.Rate {
	s, t := worked(a), worked(b)
	if s+t == 0 {
		return facts.Rate{}
	}
	sum := facts.Rate{
		FLOPs: a.FLOPs + b.FLOPs, Bytes: a.Bytes + b.Bytes,
		PeakShare: (a.PeakShare*s + b.PeakShare*t) / (s + t),
	}
	sum.FLOPRate, sum.ByteRate = sum.FLOPs/(s+t), sum.Bytes/(s+t)
	if sum.Bound, sum.Precision = a.Bound, a.Precision; t > s {
		sum.Bound, sum.Precision = b.Bound, b.Precision
	}
	return sum
}

// worked returns the time in seconds that a rate is over.
func worked(r facts.Rate) float64 {
	if r.ByteRate > 0 {
		return r.Bytes / r.ByteRate
	}
	return ratio(r.FLOPs, r.FLOPRate)
}

// most returns the first n, and how many more there are.
func most[T any](list []T, n int) ([]T, int) { return list[:min(n, len(list))], max(0, len(list)-n) }

// State returns the report, with lists as long as its size allows. Nothing can be added to the book
// afterwards.
func (b *Book) State(list []jobs.Job) *State {
	s := &State{
		Version: 2, Now: time.Now().UnixMilli(), Findings: []finding.Finding{}, Devices: []Device{},
		Operations: []Operation{}, Roofs: []Roof{}, Steps: []Step{}, Requests: []Request{},
	}
	b.profiles = slices.DeleteFunc(b.profiles, func(p *Profile) bool { return !p.whole })
	for _, p := range b.profiles {
		p.Name = filepath.Base(p.Name)
	}
	for _, j := range list {
		if len(j.Transfers) > 0 { // which the ranks alone know less well
			b.withoutTransfers(j.Ranks)
		}
	}
	slices.SortStableFunc(b.profiles, func(a, b *Profile) int { return cmp.Compare(a.Rank, b.Rank) })
	s.Jobs, s.Health.ProfilesDropped = list, b.more
	b.fit(s)
	return s
}

// withoutTransfers removes the transfers of the ranks of a job.
func (b *Book) withoutTransfers(ranks []jobs.Rank) {
	for _, p := range b.profiles {
		if !slices.ContainsFunc(ranks, func(r jobs.Rank) bool { return r.Rank == p.Rank && r.File == p.Name }) {
			continue
		}
		for i := range p.Devices {
			p.Devices[i].Transfers, p.Devices[i].MoreTransfers = nil, 0
		}
	}
}

// Stacks returns the stacks of the profiles that were read to their end.
func (b *Book) Stacks() *stackprofile.Total { return b.stacks }

// Flames returns the flame graph of the profiles that were read to their end; nil if there are no
// stacks.
func (b *Book) Flames() *stackprofile.Graph { return b.flames(shownNodes) }

func (b *Book) flames(nodes int) *stackprofile.Graph {
	list := b.stacks.Profiles()
	if len(list) == 0 {
		return nil
	}
	return stackprofile.NewGraph(list, nodes)
}

// Compared returns the report on what changed from the first profile to the second; flames may be
// nil.
func Compared(names [2]string, reports [2][]facts.Report, flames [2]*stackprofile.Graph) *State {
	c := &Comparison{Comparison: facts.Compare(reports[0], reports[1]), Names: names}
	c.Operators, c.MoreOperators = most(c.Operators, shownChanges)
	c.Kernels, c.MoreKernels = most(c.Kernels, shownChanges)
	for i, n := range c.Names {
		c.Names[i] = filepath.Base(n)
	}
	for _, list := range [][]facts.Change{c.Operators, c.Kernels} {
		for i := range list {
			x := &list[i]
			x.Name, x.How = clip(x.Name), clip(x.How)
			x.Work[0].Shapes, x.Work[1].Shapes = nil, nil // How has them
		}
	}
	b := NewBook()
	for i, n := range names {
		if names[0] == names[1] {
			n += []string{" (before)", " (after)"}[i]
		}
		b.Profile(n, reports[i], nil)
	}
	s := b.State(nil)
	s.Comparison = c
	s.FlamesBefore, s.Flames = flames[0], flames[1]
	return s
}
