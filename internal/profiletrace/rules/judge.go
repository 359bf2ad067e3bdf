// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

// Thresholds: shares of the window or step, unless stated otherwise.
const (
	thresholdGain      = semconv.FindingHealthyThreshold        // minimum worth reporting; below it a device is healthy
	thresholdNoLoad    = semconv.FindingNoLoadThreshold         // waiting for work from outside
	thresholdSpike     = semconv.FindingMemorySpikeThreshold    // growth of allocated memory ÷ its highest
	thresholdMoves     = semconv.FindingDataMovementThreshold   // of computing time: kernels that move bytes
	thresholdNotJudged = semconv.FindingNotJudgedThreshold      // kernels that could not be compared with a peak
	thresholdNarrow    = semconv.FindingLowParallelismThreshold // of computing time: what small kernels leave empty

	lowShare  = semconv.FindingLowEfficiencyPeak      // of the roofline
	reachable = semconv.FindingLowEfficiencyReachable // of the roofline: gains are counted by it

	maxEfficiency = semconv.FindingLowEfficiencyFindings // findings on operators
	maxHost       = semconv.FindingHostWorkFindings      // findings on ranges of the host
	manyRetries   = semconv.FindingAllocationRetries     // frees, and allocations, of an allocator that caches memory

	// certainCoverage is the part of the kernel time from which on efficiency is known. It only
	// decides the certainty.
	certainCoverage = 0.8
)

// remedyOf returns the usual remedy of a kind.
func remedyOf(kind string) string {
	k, _ := semconv.LookupFindingKind(kind)
	return k.Remedy
}

// judge makes findings of one subject.
type judge struct {
	subject string
	f       *facts.Context
	length  int64
	account *facts.Spending
	list    []finding.Finding
	largest finding.Finding // below the threshold
	uneven  bool            // a few steps last longer because they have more work
}

// add adds a finding. A rule states a remedy where the evidence points to a better one than the
// usual one.
func (j *judge) add(v finding.Finding) {
	if j.length <= 0 || v.Gain <= 0 {
		return
	}
	v.Subject, v.Share, v.Threshold = j.subject, float64(v.Gain)/float64(j.length), thresholdGain
	j.remedy(&v)
	if v.Share < thresholdGain {
		if v.Gain > j.largest.Gain {
			j.largest = v
		}
		return
	}
	j.list = append(j.list, v)
}

func (j *judge) remedy(v *finding.Finding) {
	v.Remedy = inTermsOf(j.f.Framework, cmp.Or(v.Remedy, remedyOf(v.Kind)))
}

// note adds a finding without a known gain.
func (j *judge) note(v finding.Finding, share, threshold float64) {
	if share >= threshold {
		v.Subject, v.Share, v.Threshold = j.subject, share, threshold
		j.remedy(&v)
		j.list = append(j.list, v)
	}
}

// sorted puts the largest gain first. Idle time without a named cause counts half there: known
// causes come first, unless they are small in comparison.
func (j *judge) sorted() []finding.Finding {
	for i := range j.list {
		v := &j.list[i]
		v.Weight = cmp.Or(v.Weight, v.Gain)
		vague := v.Kind == semconv.GPUFindingKindHostWork || v.Kind == semconv.GPUFindingKindUnexplainedIdle
		if v.Certainty == finding.Low && vague {
			v.Weight /= 2
		}
	}
	slices.SortStableFunc(j.list, func(a, b finding.Finding) int { return cmp.Compare(b.Weight, a.Weight) })
	return j.list
}

func (j *judge) device0() string {
	if strings.HasPrefix(j.subject, "GPU ") {
		return j.subject
	}
	return "the device"
}

// Device returns the findings on a device's window, the largest gain first.
func Device(d *facts.Totals, f *facts.Context, r *facts.Report) []finding.Finding {
	left := d.Spending.Clone() // rules subtract what they claim
	j := &judge{subject: fmt.Sprintf("GPU %d", f.Ordinal), f: f, length: int64(r.Window), account: &left}
	idles := j.noLoad()
	tried := j.trials(d)
	j.checkpoint()
	j.compilation()
	j.idle(d, r)
	j.outside(&d.Head, "%s could have begun its window %s earlier")
	j.outside(&d.Tail, "%s had nothing to do for %s after its window")
	stalled := j.copies(d, r)
	j.collectives(j.experts(d, r))
	needed := max(0, 1-tried-stalled-j.slow(d))
	rest := *r
	rest.Operators = j.attention(d, j.moves(d, r, needed), needed)
	claimed := j.efficiency(&rest, needed)
	j.fusion(&rest, claimed, needed)
	j.precision(&rest, claimed, needed)
	j.parallelism(d, &rest, claimed, needed)
	j.tailWave(&rest, claimed, needed)
	j.notJudged(d, r)
	j.notRecorded()
	j.memory(&j.f.Memory)
	j.warmUp(d, r)
	j.unevenSteps(r)
	j.doubt()
	return append(idles, j.healthy(r)...)
}

// Step returns the findings on a step of the given length.
func Step(a *facts.StepSpending, subject string, length int64, f *facts.Context) []finding.Finding {
	j := &judge{subject: subject, f: f, length: length - a.Idles[timeline.CauseNoLoad], account: &a.Spending}
	j.idle(nil, nil)
	exposed := func(kind, what string, sum int64, locations []finding.Location) {
		j.add(finding.Finding{
			Kind: kind, Gain: time.Duration(sum), Where: locations, Certainty: finding.Medium,
			Chain:    []string{what, fmt.Sprintf("the device computed nothing for %s", finding.Duration(sum))},
			Evidence: "in " + finding.Names(locations),
		})
	}
	exposed(semconv.GPUFindingKindExposedCopies, "copies are in the critical path", a.Parts[timeline.Copying],
		a.Copies.Locations(f, timeline.CauseUnknown))
	var kernels []finding.Location
	for name, n := range a.Comms {
		kernels = append(kernels, finding.Location{Name: f.Kernel(name), Time: time.Duration(n)})
	}
	exposed(semconv.GPUFindingKindExposedCommunication, "collectives ran while nothing computed",
		a.Parts[timeline.Communicating], finding.Longest(kernels))
	j.memory(&f.Memory)
	return j.sorted()
}

// product reports whether an operator multiplies matrices, which is what those engines do.
func product(name string) bool {
	return slices.ContainsFunc([]string{"mm", "linear", "matmul", "conv", "einsum", "attention"},
		func(word string) bool { return strings.Contains(name, word) })
}
