// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Report is the work of one device over the window, and the possible gains. Its JSON has durations
// in ns, rates in FLOP and bytes per second, and shares from 0 to 1.
type Report struct {
	Ordinal int64         `json:"ordinal"`
	Model   string        `json:"model,omitempty"` // empty: not stated
	Window  time.Duration `json:"window_ns"`       // from the first start to the last end
	Parts   Parts         `json:"parts"`
	Idle    []CauseTime   `json:"idle,omitempty"` // by cause, the longest first; their sum is Parts.Idle
	Steps   int64         `json:"steps,omitempty"`
	// Around is idle time outside the window in the first or last step (without steps, in the
	// outermost range of the host), Before what the host did before that: start-up and the loader.
	Around []CauseTime `json:"around,omitempty"`
	Before []CauseTime `json:"before,omitempty"`
	// in the order of their ends, the first maxSteps; empty: read from spans
	ByStep []Step `json:"by_step,omitempty"`

	Kernels     int64        `json:"kernels"`
	Efficiency  Efficiency   `json:"efficiency"`
	Operators   []Operator   `json:"operators,omitempty"` // by name and shapes, the longest first
	ByKernel    []Kernel     `json:"by_kernel,omitempty"`
	Copies      []Copy       `json:"copies,omitempty"`
	Collectives []Collective `json:"collectives,omitempty"`
	Transfers   []Transfer   `json:"transfers,omitempty"` // of collectives whose messages are stated
	Memory      []Level      `json:"memory,omitempty"`    // memory handed out by the framework's allocator
	// Modules are the modules and annotations around launches, each before those within it. Of the
	// MoreModules, none takes a thousandth of the window, or there are very many.
	Modules     []Module          `json:"modules,omitempty"`
	MoreModules int               `json:"moreModules,omitempty"`
	Findings    []finding.Finding `json:"findings"`
}

// Parts are the parts of a window. Computing, CommExposed, CopyExposed, Idle and NotRecorded add up
// to it; CommHidden and CopyHidden overlapped them.
type Parts struct {
	Computing   time.Duration `json:"computing_ns"`
	CommExposed time.Duration `json:"communication_exposed_ns"`
	CommHidden  time.Duration `json:"communication_hidden_ns"`
	CopyExposed time.Duration `json:"copying_exposed_ns"`
	CopyHidden  time.Duration `json:"copying_hidden_ns"`
	Idle        time.Duration `json:"idle_ns"`
	// NotRecorded is time in which launched work without a record may have run.
	NotRecorded time.Duration `json:"not_recorded_ns,omitzero"`
}

// Step is the time of a step's only device. Parts and idle times add up to the part of the step
// inside the device's window.
type Step struct {
	Name  string        `json:"name"`
	Start int64         `json:"start_unix_ns"`
	Time  time.Duration `json:"time_ns"`
	Parts Parts         `json:"parts"` // hidden parts are not known by step
	Idle  []CauseTime   `json:"idle,omitempty"`
}

// CauseTime is the idle time of one cause.
type CauseTime struct {
	Cause timeline.Cause     `json:"cause"`
	Time  time.Duration      `json:"time_ns"`
	Where []finding.Location `json:"where,omitempty"` // the longest
}

// Efficiency is the performance of operators with known work. Rates are over the time of the
// kernels that they launched.
type Efficiency struct {
	FLOPs     float64       `json:"flops"`
	Bytes     float64       `json:"bytes"`
	Time      time.Duration `json:"time_ns"`             // of the kernels of those operators
	Coverage  float64       `json:"coverage"`            // part of the kernel time, collectives omitted
	Peak      string        `json:"peak,omitempty"`      // row of the table of peaks; empty: none
	PeakShare float64       `json:"peak_share,omitzero"` // of the time of those kernels, what the work takes at the peak
	MFU       float64       `json:"mfu,omitzero"`        // FLOPs at their peaks ÷ window
	NoPeak    string        `json:"no_peak,omitempty"`   // why no peak is known
}

// Rate is the rate of an operator or a kernel, and how it compares with the device.
type Rate struct {
	FLOPs     float64 `json:"flops,omitzero"`
	Bytes     float64 `json:"bytes,omitzero"`
	Precision string  `json:"precision,omitempty"`
	FLOPRate  float64 `json:"flops_per_second,omitzero"`
	ByteRate  float64 `json:"bytes_per_second,omitzero"`
	PeakShare float64 `json:"peak_share,omitzero"` // time at the peak ÷ time; 0: not known
	Bound     string  `json:"bound,omitempty"`     // compute or memory, whichever takes longer at the peak
}

// Operator is one operator with inputs of the same shapes.
type Operator struct {
	Name    string        `json:"name"`
	Shapes  string        `json:"shapes,omitempty"`
	Calls   int64         `json:"calls,omitempty"` // whose work is known
	Kernels int64         `json:"kernels"`
	Time    time.Duration `json:"time_ns"`  // of its kernels
	Alone   time.Duration `json:"alone_ns"` // of the window: of kernels that run together, the first has it
	Kernel  string        `json:"kernel"`   // the longest
	Rate
	Moved     time.Duration `json:"-"` // of Alone, by kernels that move bytes and compute nothing
	MovedTime time.Duration `json:"-"` // of Time, by those
	Attention time.Duration `json:"-"` // of Time, by parts of attention; see scores
	Narrow    time.Duration `json:"-"` // of Alone
	Empty     float64       `json:"-"` // of narrow, the part of the device that no block fills
	Tailed    time.Duration `json:"-"` // of Alone, by kernels whose last wave of blocks is not full
	Tail      float64       `json:"-"` // of Tailed, the part for which the device is empty, in ns
	Handed    time.Duration `json:"-"` // of kernels adjacent to another elementwise one, once for each side
	Links     int64         `json:"-"` // pairs of those
}

// Kernel is all kernels of one name.
type Kernel struct {
	Name  string        `json:"name"`
	Count int64         `json:"count"`
	Time  time.Duration `json:"time_ns"`
	Alone time.Duration `json:"alone_ns"`
	Comm  bool          `json:"communication,omitempty"`
	Launched
	Rate
}

// Copy is all copies of a direction and kind of host memory.
type Copy struct {
	Direction string        `json:"direction,omitempty"`
	Memory    string        `json:"memory,omitempty"`
	Count     int64         `json:"count"`
	Bytes     int64         `json:"bytes"`
	Time      time.Duration `json:"time_ns"`
	Exposed   time.Duration `json:"exposed_ns"`
	Stalled   time.Duration `json:"-"` // concurrent with kernels, of migrations to the device: the kernels wait for pages
	In        Spending      `json:"-"` // exposed time by the ranges that requested it
}

// Collective is all collectives of a kind; Waiting and Moving are its exposed time.
type Collective struct {
	Name    string        `json:"name"`
	Count   int64         `json:"count"`
	Time    time.Duration `json:"time_ns"`
	Waiting time.Duration `json:"waiting_ns"`
	Moving  time.Duration `json:"moving_ns"`
	Mixed   bool          `json:"-"` // waiting cannot be distinguished; everything counts as moving
	Bytes   int64         `json:"-"`
	Best    float64       `json:"-"` // bytes ÷ the shortest of the kind, per second; 0: not known
}

// Context is what a report needs besides the activities.
type Context struct {
	Ordinal int64
	Model   string
	Peak    Peak
	Steps   int64
	World   int64               // ranks of the job; 0: not stated
	Name    func(uint32) string // of ranges, calls and operators; empty for 0
	Kernel  func(uint32) string // of kernels
	Memory  Memory
	Clocks  []event.ClockReading // of the device, as far as the file contains them
	Windows bool                 // the host runs Windows
	Modules *ModuleTree

	Framework event.Framework

	Launches, Lost int64  // launches of kernels and graphs, and how many of them have no recorded work
	Incomplete     string // why the file lacks records, by its own statement; empty: not known
}

// Memory is the course of the framework's allocated memory.
type Memory struct {
	First, Highest int64
	At             string // range in which it was highest
	Levels         []Level
}

// Report returns the sums of the device, without findings. No further activities may be added.
func (d *Device) Report(f *Context) Report {
	d.finish()
	r := Report{
		Ordinal: f.Ordinal, Model: f.Model, Window: time.Duration(d.end - d.First), Kernels: d.Kernels, Steps: f.Steps,
		Parts: d.exclusive(), Idle: causeTimes(d.Idles), Around: causeTimes(d.edges), Before: causeTimes(d.before),
		Memory: f.Memory.Levels,
	}
	r.Parts.CommHidden = time.Duration(d.busy[timeline.Communicating].Length) - r.Parts.CommExposed
	r.Parts.CopyHidden = time.Duration(d.busy[timeline.Copying].Length) - r.Parts.CopyExposed
	for i := range r.Idle {
		r.Idle[i].Where = d.Locations(f, r.Idle[i].Cause)
	}
	d.operators(&r, f)
	d.byKernel(&r, f)
	d.otherLists(&r, f)
	d.transfers(&r, f)
	r.Modules, r.MoreModules = d.moduleList(f.Modules, f.Name, r.Window)
	if s, ok := d.pace.slowdown(f.Clocks); ok {
		d.Slowdown = &s
	}
	return r
}

// Step returns the account of a step of this name, start (unix ns) and length, in which the device
// computed for that long; computing time is not in accounts.
func (a *StepSpending) Step(name string, start, length, computing int64) Step {
	s := Step{Name: name, Start: start, Time: time.Duration(length), Parts: a.exclusive(), Idle: causeTimes(a.Idles)}
	s.Parts.Computing = time.Duration(computing)
	return s
}

// exclusive returns the parts that add up.
func (a *Spending) exclusive() Parts {
	return Parts{
		Computing: time.Duration(a.Parts[timeline.Computing]), CommExposed: time.Duration(a.Parts[timeline.Communicating]),
		CopyExposed: time.Duration(a.Parts[timeline.Copying]), Idle: time.Duration(a.IdleTime()),
		NotRecorded: time.Duration(a.Idles[timeline.CauseNotRecorded]),
	}
}

// causeTimes returns the causes with any time, the longest first.
func causeTimes(idles [timeline.Causes]int64) (list []CauseTime) {
	for c, n := range idles {
		if n > 0 && timeline.Cause(c) != timeline.CauseNotRecorded {
			list = append(list, CauseTime{Cause: timeline.Cause(c), Time: time.Duration(n)})
		}
	}
	SortIdle(list)
	return list
}

// SortIdle puts the longest first.
func SortIdle(list []CauseTime) {
	slices.SortStableFunc(list, func(a, b CauseTime) int { return cmp.Compare(b.Time, a.Time) })
}

// Locations returns where most of the idle time of a cause was spent.
func (a *Spending) Locations(f *Context, c timeline.Cause) []finding.Location {
	var top []spent // the longest so far, by time; names decide between equals only
	less := func(x, y *spent) bool {
		if x.Time != y.Time {
			return x.Time > y.Time
		}
		return cmp.Or(cmp.Compare(f.Name(x.At.Name), f.Name(y.At.Name)),
			cmp.Compare(f.Name(x.At.In&^timeline.InnerName), f.Name(y.At.In&^timeline.InnerName))) < 0
	}
	for i := range a.Spent {
		s := &a.Spent[i]
		if s.At.Cause != c {
			continue
		}
		at := len(top)
		for at > 0 && less(s, &top[at-1]) {
			at--
		}
		if at < finding.MaxPlaces {
			top = slices.Insert(top, at, *s)
			top = top[:min(finding.MaxPlaces, len(top))]
		}
	}
	list := make([]finding.Location, 0, len(top))
	for _, e := range top {
		name, in := e.At.Name, e.At.In
		if in&timeline.InnerName != 0 || c == timeline.CauseLoader && in != 0 { // within a loader the inner range is kept
			name, in = in&^timeline.InnerName, name
		}
		p := finding.Location{Name: cmp.Or(f.Name(name), NoRange), Time: time.Duration(e.Time), Count: e.Count}
		if in != name {
			p.In = f.Name(in)
		}
		list = append(list, p)
	}
	return list
}

// String returns one line for people: the parts of the window, idle time by cause, and the rates.
func (r Report) String() string {
	part := func(t time.Duration) string {
		return fmt.Sprintf("%s (%.3g %%)", finding.Duration(t), 100*float64(t)/float64(max(r.Window, 1)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %d", r.Ordinal)
	if r.Model != "" {
		fmt.Fprintf(&b, " (%s)", r.Model)
	}
	fmt.Fprintf(&b, ": %s = computing %s", finding.Duration(r.Window), part(r.Parts.Computing))
	if r.Parts.CommExposed+r.Parts.CommHidden > 0 {
		fmt.Fprintf(&b, " + exposed communication %s, hidden %s", part(r.Parts.CommExposed),
			finding.Duration(r.Parts.CommHidden))
	}
	if r.Parts.CopyExposed+r.Parts.CopyHidden > 0 {
		fmt.Fprintf(&b, " + exposed copies %s, hidden %s", part(r.Parts.CopyExposed), finding.Duration(r.Parts.CopyHidden))
	}
	fmt.Fprintf(&b, " + idle %s", part(r.Parts.Idle))
	if len(r.Idle) > 0 {
		var list []string
		for _, c := range r.Idle {
			list = append(list, fmt.Sprintf("%s %s", c.Cause, finding.Duration(c.Time)))
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(list, ", "))
	}
	if r.Parts.NotRecorded > 0 {
		fmt.Fprintf(&b, " + not recorded %s", part(r.Parts.NotRecorded))
	}
	if e := r.Efficiency; e.Time > 0 && e.FLOPs+e.Bytes > 0 {
		seconds := e.Time.Seconds()
		var rates []string
		if e.FLOPs > 0 {
			rates = append(rates, finding.Rate(e.FLOPs/seconds, "FLOP/s"))
		}
		if e.Bytes > 0 {
			rates = append(rates, finding.Rate(e.Bytes/seconds, "B/s"))
		}
		fmt.Fprintf(&b, "; operators with known work: %s over %.3g %% of the kernel time", strings.Join(rates, ", "),
			100*e.Coverage)
		if e.PeakShare > 0 {
			fmt.Fprintf(&b, ", %.3g %% of the peak of %s", 100*e.PeakShare, e.Peak)
		}
		if e.NoPeak != "" {
			fmt.Fprintf(&b, "; no peak is known: %s", e.NoPeak)
		}
	}
	return b.String()
}

// NoRange is the location name of time that no host range covers.
const NoRange = "no named range"
