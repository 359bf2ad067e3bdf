// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// compareRanks is the beginning of remedies that need a job's other ranks. It is valid with and
// without them: a file is judged before it is known which others belong to its job.
const compareRanks = "compare the ranks (their profiles, converted together, say which one is late)"

// A link is faulty if it is slower with large messages than slowLink of the rate of the host's bus.
const (
	slowLink     = semconv.FindingExposedCommunicationLink
	largeMessage = semconv.FindingExposedCommunicationLargeMessage
	smallMessage = semconv.FindingExposedCommunicationSmallMessage
)

// collectives claims exposed communication: waiting and moving.
func (j *judge) collectives(r *facts.Report) {
	var waiting, moving, slow, small, paired time.Duration
	var waits, moves []finding.Location
	for _, c := range r.Collectives {
		waiting += c.Waiting
		moving += c.Moving
		waits = append(waits, finding.Location{Name: c.Name, Time: c.Waiting, Count: c.Count})
		moved := c.Name
		toPeer := pairwise(c.Name)
		if toPeer {
			paired += c.Moving
		}
		if c.Best > 0 {
			moved += fmt.Sprintf(" at %s at best", finding.Rate(c.Best, "B/s"))
			if !toPeer && c.Bytes >= largeMessage && c.Best < slowLink*j.f.Peak.Host.Rate() {
				slow += c.Moving
			} else if c.Bytes < smallMessage {
				small += c.Moving
			}
		}
		moves = append(moves, finding.Location{Name: moved, Time: c.Moving, Count: c.Count})
	}
	waits, moves = finding.Longest(waits), finding.Longest(moves)
	transfers, mixed, what, remedy := "collectives", "", "move bytes",
		remedyOf(semconv.GPUFindingKindExposedCommunication)
	if slices.ContainsFunc(r.Collectives, func(c facts.Collective) bool { return c.Mixed && c.Moving > 0 }) {
		what, remedy = "move bytes or wait for a late rank",
			compareRanks+", which tells waiting; "+remedy
		mixed = "; how much of that is waiting for a late rank is not known, for there are too few of a kind or their " +
			"sizes are not recorded"
	}
	if 2*small > moving {
		remedy = fmt.Sprintf("fewer and larger messages (one buffer for many tensors, larger buckets): most are below %s, "+
			"of which latency is most", finding.Size(smallMessage))
	}
	if 2*slow > moving {
		remedy = fmt.Sprintf("look at the link: large messages are below %.0f %% of the rate of the host's bus "+
			"(NCCL_DEBUG=INFO says which way they take, nvidia-smi topo -m what there is); ", 100*slowLink) + remedy
	}
	if 2*paired > moving {
		transfers, what = "transfers between two ranks", "move bytes or wait for a late rank, as a stage of a pipeline waits"
		remedy = compareRanks + "; more micro-batches in a step or an interleaved schedule make bubbles smaller"
		mixed = "; one rank does not show which, because a receive waits for its sender"
	}
	if waiting > 0 {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindLateRank, Gain: waiting, Where: waits, Certainty: finding.Low,
			Chain: []string{
				"another rank arrived late at collectives", "this one waited in them with nothing to compute",
				fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(waiting)),
			},
			Evidence: "longer than the shortest of their kind: " + finding.Names(waits),
		})
	}
	if moving > 0 {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindExposedCommunication, Gain: moving, Where: moves, Certainty: finding.Medium,
			Chain: []string{
				transfers + " " + what + " while nothing computes",
				fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(moving)),
			},
			Evidence: finding.Names(moves) + fmt.Sprintf("; %.3g %% of all communication is hidden",
				100*float64(r.Parts.CommHidden)/float64(max(1, r.Parts.CommHidden+r.Parts.CommExposed))) + mixed,
			Remedy: remedy,
		})
	}
}

// pairwise reports whether a collective is a transfer between two ranks, as between the stages of a
// pipeline. A kernel named SendRecv alone does not show it: NCCL also runs it for all-to-all.
func pairwise(name string) bool {
	operation, _, _ := strings.Cut(name, " ")
	return operation == "send" || operation == "recv"
}

// unevenTokens is the difference between what a rank sends to the experts of others and what its
// own experts receive, as a part of their mean, above which waiting in all-to-alls is caused by the
// experts: an even router stays far below it.
const unevenTokens = semconv.FindingExpertImbalanceDifference

// experts judges waiting in all-to-alls whose two sides differ, because the router gives some ranks
// more tokens. It returns the report without that time. Where the sides are equal, a rank is late
// for another reason.
func (j *judge) experts(d *facts.Totals, r *facts.Report) *facts.Report {
	e := &d.Experts
	waiting, uneven := e.Waiting(), e.Uneven()
	if uneven < unevenTokens || float64(waiting) < thresholdGain*float64(j.length) {
		return r
	}
	rest, left := *r, waiting
	rest.Collectives = slices.Clone(r.Collectives)
	for i := range rest.Collectives {
		if c := &rest.Collectives[i]; strings.HasPrefix(c.Name, "all_to_all") {
			for _, t := range []*time.Duration{&c.Waiting, &c.Moving} {
				n := min(left, *t)
				*t, left = *t-n, left-n
			}
		}
	}
	v := finding.New(semconv.GPUFindingKindExpertImbalance, finding.Medium)
	v.Gain = waiting
	v.Where = []finding.Location{{Name: "all_to_all", Time: waiting, Count: e.Count}}
	v.Chain = []string{
		"the router gives the experts of some ranks more tokens", "the other ranks wait for them in all-to-alls",
		fmt.Sprintf("%s computed nothing for %s", j.device0(), finding.Duration(waiting)),
	}
	v.Evidence = fmt.Sprintf("the two sides of %s differ by %.3g %%; longer than the fastest takes for its size: %s of %s",
		finding.Count(e.Count, "all-to-all", "all-to-alls"), 100*uneven, finding.Duration(waiting),
		finding.Duration(e.Exposed))
	j.add(v)
	return &rest
}
