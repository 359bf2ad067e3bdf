// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// Kind is the kind of a finding.
type Kind string

// Kinds of finding, as of profiles and the live page.
const (
	PageableCopies       Kind = semconv.GPUFindingKindPageableCopies       // host copies of memory that is not pinned
	Loader               Kind = semconv.GPUFindingKindLoader               // steps wait for data
	LaunchBound          Kind = semconv.GPUFindingKindLaunchBound          // the device waits for launches of the host
	BelowFloor           Kind = semconv.GPUFindingKindBelowFloor           // sections too short to derive rates from
	WarmUp               Kind = semconv.GPUFindingKindWarmUp               // the first run costs much more than the others
	MemorySpike          Kind = semconv.GPUFindingKindMemorySpike          // one run takes much device memory
	LowEfficiency        Kind = semconv.GPUFindingKindLowEfficiency        // far below every known limit
	ExposedCommunication Kind = semconv.GPUFindingKindExposedCommunication // exposed communication
)

// Finding is a probable performance problem.
type Finding struct {
	Kind      Kind          `json:"kind"`             // kind of problem
	Subject   string        `json:"subject"`          // operation path or loop
	Value     float64       `json:"value"`            // measured value
	Threshold float64       `json:"threshold"`        // limit that Value exceeds
	Unit      string        `json:"unit"`             // unit of Value and Threshold; "1" for a ratio
	Evidence  string        `json:"evidence"`         // measured values, as text
	Remedy    string        `json:"remedy,omitempty"` // what usually helps
	Cost      time.Duration `json:"-"`                // time that the problem may cost; findings are sorted by it
}

// Title returns what the kind means, as the registry of findings has it.
func (k Kind) Title() string {
	known, _ := semconv.LookupFindingKind(string(k))
	return known.Title
}

// remedy returns what usually helps.
func (k Kind) remedy() string {
	known, _ := semconv.LookupFindingKind(string(k))
	return known.Remedy
}

// String returns one sentence with evidence, threshold and remedy.
func (f Finding) String() string {
	limit := strconv.FormatFloat(f.Threshold, 'g', 4, 64)
	if f.Unit == "1" {
		limit = percent(f.Threshold) + " %"
	} else {
		limit += " " + f.Unit
	}
	text := fmt.Sprintf("%s, %s: %s (threshold %s)", f.Kind, f.Subject, f.Evidence, limit)
	if f.Remedy != "" {
		text += "; try: " + f.Remedy
	}
	return text
}

// Thresholds are the limits from which findings are reported. Zero fields mean the default;
// negative fields disable a finding. Shares are from 0 to 1.
type Thresholds struct {
	PageableShare float64       // share of all outermost time in pageable copies, default 0.01
	LoaderShare   float64       // share of step time in phase data that no other phase hides, default 0.05
	LaunchShare   float64       // share of an operation's timed runs that waited for launches, default 0.3
	FloorShare    float64       // share of an operation's timed runs below 10 × the floor, default 0.5
	FirstRatio    float64       // first run ÷ mean of the rest, default 5
	FirstCost     time.Duration // minimum excess of the first run over that mean, default 10 ms
	SpikeShare    float64       // growth during one run ÷ highest use seen, default 0.25
	// share of the nearest known limit for LowEfficiency, default 0.5 for single kernels and 0.1
	// for other sections, which have several kernels and gaps
	PeakShare    float64
	PeakMinShare float64 // minimum share of all outermost time to gain for LowEfficiency, default 0.05
	ExposedShare float64 // share of step time in exposed communication, default 0.05
	MinRuns      int64   // minimum number of runs for shares of runs, default 5
}

func (t Thresholds) withDefaults() Thresholds {
	t.PageableShare = cmp.Or(t.PageableShare, semconv.FindingPageableCopiesLiveThreshold)
	t.LoaderShare = cmp.Or(t.LoaderShare, semconv.FindingLoaderThreshold)
	t.LaunchShare = cmp.Or(t.LaunchShare, semconv.FindingLaunchBoundRuns)
	t.FloorShare = cmp.Or(t.FloorShare, semconv.FindingBelowFloorThreshold)
	t.FirstRatio = cmp.Or(t.FirstRatio, semconv.FindingWarmUpFirstRatio)
	t.SpikeShare = cmp.Or(t.SpikeShare, semconv.FindingMemorySpikeThreshold)
	t.PeakMinShare = cmp.Or(t.PeakMinShare, semconv.FindingLowEfficiencyThreshold)
	t.ExposedShare = cmp.Or(t.ExposedShare, semconv.FindingExposedCommunicationThreshold)
	t.FirstCost = cmp.Or(t.FirstCost, time.Duration(semconv.FindingWarmUpFirstExcess*float64(time.Second)))
	t.MinRuns = cmp.Or(t.MinRuns, semconv.FindingBelowFloorRuns)
	return t
}

// Findings returns the findings of the summary, sorted by Cost, highest first.
func (s Summary) Findings(t Thresholds) []Finding {
	t = t.withDefaults()
	var out []Finding
	add := func(f Finding, on bool) {
		if on && f.Threshold > 0 && f.Value >= f.Threshold {
			f.Remedy = f.Kind.remedy()
			out = append(out, f)
		}
	}
	for i := range s.Operations {
		s.Operations[i].findings(t, add)
	}
	for i := range s.Loops {
		s.Loops[i].findings(t, add)
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(b.Cost, a.Cost) })
	return out
}

func (o *Operation) findings(t Thresholds, add func(Finding, bool)) {
	d := o.All.Duration
	subject := strings.Join(o.Path, " > ")
	finding := func(k Kind, value, threshold float64, cost time.Duration, format string, args ...any) Finding {
		return Finding{
			Kind: k, Subject: subject, Value: value, Threshold: threshold, Unit: "1", Cost: cost,
			Evidence: fmt.Sprintf(format, args...),
		}
	}
	// Only the timed copies: count, bytes, time and rate belong together, also where most runs only
	// count.
	copied := ""
	if r := o.All.Rates().PCIe; r > 0 {
		copied = fmt.Sprintf(" of %s at %s GB/s", size(int64(math.Round(r*d.Total.Seconds()))), scaled(r, 1e9))
	}
	add(finding(PageableCopies, o.ShareOfTotal, t.PageableShare, d.Total,
		"%d timed copies%s from or to pageable memory took %s, %s %% of all section time",
		d.Count, copied, duration(d.Total), percent(o.ShareOfTotal)),
		o.HostMemory == "pageable" && d.Count > 0)

	enough := d.Count >= t.MinRuns
	part := func(n int64) float64 { return float64(n) / float64(max(d.Count, 1)) }
	add(finding(LaunchBound, part(o.Starved), t.LaunchShare, d.Total,
		"%d of %d runs ended on the device within %.3g %% of their duration after the host's End, so the device waited "+
			"for launches; mean %s",
		o.Starved, d.Count, 100*starvedPart, duration(d.Mean)),
		enough)
	add(finding(BelowFloor, part(o.BelowFloor), t.FloorShare, d.Total,
		"%d of %d runs are shorter than %d × the device's empty section of %s; mean %s",
		o.BelowFloor, d.Count, floorFactor, duration(o.Floor), duration(d.Mean)),
		enough)

	if ratio, expected := o.firstRatio(); ratio > 0 {
		first, rest := o.First.Duration.Mean, o.Rest.Duration
		same := ""
		if expected != rest.Mean {
			same = fmt.Sprintf(", %s for as much work", duration(expected))
		}
		f := finding(WarmUp, ratio, t.FirstRatio, first-expected,
			"the first run took %s, the other %d took %s each%s: %s times (loading, compiling, tuning)",
			duration(first), rest.Count, duration(rest.Mean), same, digits(ratio))
		f.Unit = "times"
		add(f, t.FirstCost > 0 && first-expected >= t.FirstCost)
	}
	if o.MemoryPeak > 0 {
		share := float64(o.MemorySpike) / float64(o.MemoryPeak)
		add(finding(MemorySpike, share, t.SpikeShare, 0,
			"one run took %s more device memory, of %s in use at most", size(o.MemorySpike), size(o.MemoryPeak)),
			true)
	}
	limit := t.PeakShare
	if limit == 0 {
		limit = semconv.FindingLowEfficiencySectionPeak
		if o.Type == semconv.GPUOperationTypeKernel {
			limit = semconv.FindingLowEfficiencyPeak
		}
	}
	gain := 1 - o.PeakShare/semconv.FindingLowEfficiencyReachable // what good kernels would save
	add(finding(LowEfficiency, gain*o.ShareOfTotal, t.PeakMinShare, time.Duration(float64(d.Total)*gain),
		"%s of section time at %s %% of its nearest limit (%s), which is less than %s %%", duration(d.Total),
		percent(o.PeakShare), o.PeakOf, percent(limit)),
		enough && o.PeakShare > 0 && o.PeakShare < limit && part(o.BelowFloor) < t.FloorShare)
}

// firstRatio returns how many times as long as expected the first run took: as the other runs, or
// longer if it does more of the work that both declare. It is 0 if that is not known, as if only
// one of them declares any.
func (o *Operation) firstRatio() (ratio float64, expected time.Duration) {
	first, rest := &o.First, &o.Rest
	if first.Duration.Count == 0 || rest.Duration.Count == 0 || rest.Duration.Mean <= 0 {
		return 0, 0
	}
	more := 1.0
	f, r := first.amounts(), rest.amounts()
	for i := range f {
		if (f[i] > 0) != (r[i] > 0) {
			return 0, 0
		}
		if f[i] > 0 {
			more = max(more, f[i]/r[i])
		}
	}
	expected = time.Duration(math.Round(more * float64(rest.Duration.Mean)))
	return float64(first.Duration.Mean) / float64(expected), expected
}

// amounts returns the declared work of a run on average, in units that do not compare with each
// other.
func (f *Figures) amounts() [4]float64 {
	n := float64(max(f.Count, 1))
	return [4]float64{float64(f.Memory.Total()) / n, float64(f.PCIe.Total()) / n, float64(f.Items) / n, f.TotalFLOPs() / n}
}

func (l *Loop) findings(t Thresholds, add func(Finding, bool)) {
	total := l.Duration.Total - l.partial
	if total <= 0 {
		return
	}
	finding := func(k Kind, of time.Duration, threshold float64, what string) Finding {
		share := float64(of) / float64(total)
		return Finding{
			Kind: k, Subject: "loop " + l.Name, Value: share, Threshold: threshold, Unit: "1", Cost: of,
			Evidence: fmt.Sprintf("%s took %s of %s in %d steps, %s %%", what, duration(of), duration(total), l.Steps-l.Partial,
				percent(share)),
		}
	}
	f := finding(Loader, l.Waiting, t.LoaderShare, "waiting for data that no other phase hides")
	add(f, l.Waiting > 0)
	f = finding(ExposedCommunication, l.Exposed, t.ExposedShare, "communication that no other phase hides")
	add(f, l.Exposed > 0)
}
