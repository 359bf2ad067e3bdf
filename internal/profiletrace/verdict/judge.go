// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// Thresholds: parts of the window or step, unless said otherwise.
const (
	thresholdGain    = 0.05 // what is worth a word; below it a device is healthy
	thresholdNoLoad  = 0.5  // waiting for work from outside
	thresholdSpike   = 0.25 // growth of allocated memory ÷ its highest
	thresholdOpaque  = 0.5  // of computing time: in compiled regions and graphs
	thresholdMoves   = 0.1  // of computing time: kernels that move bytes and compute nothing
	thresholdNarrow  = 0.25 // of computing time: kernels with fewer blocks than multiprocessors
	lowShare         = 0.5  // of the peak: below it an operator is worth a look
	reachable        = 0.7  // of the peak: what good kernels reach, by which gains are counted
	maxEfficiency    = 3    // findings on operators
	maxHost          = 3    // findings on ranges of the host
	manyRetries      = 3    // frees, and allocations, of an allocator that keeps what it has
	certainCoverage  = 0.8  // of a cause's time: in ranges with a name
	namesInSentence  = 3
	mostNameInSentce = 80
)

// NoRange is the name of the place of what no range of the host covers.
const NoRange = "no named range"

// judge makes findings of one subject.
type judge struct {
	subject string
	f       *Facts
	length  int64
	account *account
	list    []finding.Finding
	largest finding.Finding // below the threshold
}

func (j *judge) add(v finding.Finding) {
	if j.length <= 0 || v.Gain <= 0 {
		return
	}
	v.Subject, v.Share, v.Threshold = j.subject, float64(v.Gain)/float64(j.length), thresholdGain
	if v.Share < thresholdGain {
		if v.Gain > j.largest.Gain {
			j.largest = v
		}
		return
	}
	j.list = append(j.list, v)
}

// note adds what has no gain that is known.
func (j *judge) note(v finding.Finding, share, threshold float64) {
	if share >= threshold {
		v.Subject, v.Share, v.Threshold = j.subject, share, threshold
		j.list = append(j.list, v)
	}
}

// sorted puts the largest gain first. Idle time of which the cause has no name counts for half there: what is known is
// said first, unless it is little beside.
func (j *judge) sorted() []finding.Finding {
	for i := range j.list {
		v := &j.list[i]
		v.Weight = v.Gain
		vague := v.Kind == semconv.GPUFindingKindHostWork || v.Kind == semconv.GPUFindingKindUnexplainedIdle
		if v.Certainty == finding.Low && vague {
			v.Weight /= 2
		}
	}
	slices.SortStableFunc(j.list, func(a, b finding.Finding) int { return cmp.Compare(b.Weight, a.Weight) })
	return j.list
}

func clip(s string) string {
	if r := []rune(s); len(r) > mostNameInSentce {
		return string(r[:mostNameInSentce-1]) + "…"
	}
	return s
}

// Names are the first places.
func Names(places []finding.Place) string {
	var list []string
	for _, p := range places[:min(namesInSentence, len(places))] {
		p.Name, p.In = clip(p.Name), clip(p.In)
		list = append(list, p.String())
	}
	return strings.Join(list, ", ")
}

func (j *judge) device0() string {
	if strings.HasPrefix(j.subject, "GPU ") {
		return j.subject
	}
	return "the device"
}

// device judges a device's window.
func (j *judge) device(d *Device, r *Report) []finding.Finding {
	idles := j.noLoad()
	tried := j.trials(d)
	j.idle(d)
	j.outside(&d.head, "%s could have begun its window %s earlier")
	j.outside(&d.tail, "%s had nothing to do for %s after its window")
	stalled := j.copies(d, r)
	j.collectives(r)
	needed := max(0, 1-tried-stalled-j.slow(d))
	rest := *r
	rest.Operators = j.attention(d, j.moves(d, r, needed), needed)
	claimed := j.efficiency(&rest, needed)
	j.fusion(&rest, claimed, needed)
	j.precision(&rest, claimed, needed)
	j.parallelism(d, &rest, claimed, needed)
	if c := d.parts[Computing]; c > 0 {
		j.note(finding.Finding{
			Kind: semconv.GPUFindingKindOpaqueRegions, Certainty: finding.High, Chain: []string{
				"compiled regions and graphs do not show their operators",
				"what they compute is not judged",
			},
			Evidence: fmt.Sprintf("%s of %s of computing", finding.Duration(d.opaque), finding.Duration(c)),
			Remedy: "name the traces in which the graphs were captured (--captures), or profile once without graphs and " +
				"compilation",
		}, float64(d.opaque)/float64(c), thresholdOpaque)
	}
	j.memory(&j.f.Memory)
	j.warmUp(d, r)
	return append(idles, j.healthy(r)...)
}

// noLoad takes the time off in which the program waited for work from outside: what could be gained is held against the
// rest. Its finding, if most of the window was so, comes first, for nothing is gained by any other then.
func (j *judge) noLoad() []finding.Finding {
	n := j.account.idles[CauseNoLoad]
	whole := j.length
	j.length -= n + j.account.idles[CauseWarmUp]
	if float64(n) < thresholdNoLoad*float64(whole) || n == 0 {
		return nil
	}
	p := j.account.places(j.f, CauseNoLoad)
	return []finding.Finding{{
		Kind: semconv.GPUFindingKindNoLoad, Subject: j.subject, Certainty: finding.High, Where: p, Weight: time.Duration(n),
		Share: float64(n) / float64(whole), Threshold: thresholdNoLoad,
		Chain: j.idleChain("the program waited for work from outside, as a server for requests", n),
		Evidence: fmt.Sprintf("%.3g %% of the window, in %s; further shares are of the rest, %s",
			100*float64(n)/float64(whole), Names(p), finding.Duration(j.length)),
		Remedy: "more load on this device, or fewer devices",
	}}
}

func (j *judge) healthy(r *Report) []finding.Finding {
	for _, v := range j.list {
		if v.Gain > 0 {
			return j.sorted()
		}
	}
	v := finding.Finding{
		Kind: semconv.GPUFindingKindHealthy, Subject: j.subject, Threshold: thresholdGain, Certainty: finding.High,
		Chain: []string{fmt.Sprintf("nothing to gain above %.0f %%", 100*thresholdGain)},
	}
	switch e := r.Efficiency; {
	case e.Time == 0:
		v.Certainty = finding.Medium
		v.Evidence = "efficiency is not judged, for no operator's work is known (record_shapes=True)"
	case e.NoPeak != "":
		v.Certainty, v.Evidence = finding.Medium, "efficiency is not judged: "+e.NoPeak
	case e.Coverage < certainCoverage:
		v.Certainty = finding.Medium
		v.Evidence = fmt.Sprintf("efficiency is judged for %.3g %% of the kernel time", 100*e.Coverage)
	default:
		bound := map[string]time.Duration{}
		for _, o := range r.Operators {
			bound[o.Bound] += o.Time
		}
		side := "memory"
		if bound["compute"] > bound[side] {
			side = "compute"
		}
		v.Evidence = fmt.Sprintf("most operators are bound by %s, all work at %.3g %% of the peak", side, 100*e.PeakShare)
	}
	if j.largest.Gain > 0 {
		text := fmt.Sprintf("the largest is %s with %.3g %%", j.largest.Kind, 100*j.largest.Share)
		if v.Evidence != "" {
			text += "; " + v.Evidence
		}
		v.Evidence = text
	}
	return append([]finding.Finding{v}, j.list...)
}

func (j *judge) memory(m *Memory) {
	if m.Highest <= 0 {
		return
	}
	where := ""
	if m.At != "" {
		where = ", which it reached in " + clip(m.At)
	}
	j.note(finding.Finding{
		Kind: semconv.GPUFindingKindMemorySpike, Certainty: finding.High,
		Chain:    []string{"allocated memory grows within the window"},
		Evidence: fmt.Sprintf("from %s to %s%s", finding.Held(m.First), finding.Held(m.Highest), where),
		Remedy:   "activation checkpointing, smaller batches, freeing earlier",
	}, float64(m.Highest-m.First)/float64(m.Highest), thresholdSpike)
}

// Findings are those of a step of the given length, by what it took.
func (a *Account) Findings(subject string, length int64, f *Facts) []finding.Finding {
	j := judge{subject: subject, f: f, length: length - a.idles[CauseNoLoad], account: &a.account}
	j.idle(nil)
	exposed := func(kind, what string, sum int64, places []finding.Place) {
		j.add(finding.Finding{
			Kind: kind, Gain: time.Duration(sum), Where: places, Certainty: finding.Medium,
			Chain:    []string{what, fmt.Sprintf("the device computed nothing for %s", finding.Duration(sum))},
			Evidence: "in " + Names(places),
		})
	}
	exposed(semconv.GPUFindingKindExposedCopies, "copies are in the critical path", a.parts[Copying],
		a.copies.places(f, CauseUnknown))
	var kernels []finding.Place
	for name, n := range a.comms {
		kernels = append(kernels, finding.Place{Name: f.Kernel(name), Time: time.Duration(n)})
	}
	exposed(semconv.GPUFindingKindExposedCommunication, "collectives ran while nothing computed",
		a.parts[Communicating], Longest(kernels))
	j.memory(&f.Memory)
	return j.sorted()
}
