// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// remedies are what to do next, by cause.
var remedies = map[Cause]string{
	Missing: "see what the rank does instead (py-spy dump --pid): a data loader, a save, an exception, " +
		"or a branch that only it took",
	Mismatched: "make all ranks call the same operations with equal sizes and types: look at branches and shapes " +
		"that depend on the rank or its data",
	Stalled: "look for XIDs, link errors and hung kernels on the ranks' devices and network (NCCL_DEBUG=INFO), " +
		"with TORCH_NCCL_ENABLE_TIMING=1 next time",
	Dead: "read the log of the rank: out of memory, an XID, a preempted or unreachable host; " +
		"collect its dump if it lives",
}

// Finding returns the hang as a finding. Its first sentence names the rank and what the others wait
// for.
func (h *Hang) Finding() finding.Finding {
	sure := finding.High
	switch {
	case !h.Certain:
		sure = finding.Low
	case len(h.Ranks) != 1 || h.Cause == Dead:
		sure = finding.Medium
	}
	f := finding.New(semconv.GPUFindingKindHungRank, sure)
	f.Subject, f.Chain, f.Evidence, f.Remedy = h.Subject(), h.chain(), h.evidence(), remedies[h.Cause]
	f.Hang = &finding.Hang{Group: h.Group.String(), Sequence: h.Sequence, Cause: string(h.Cause)}
	if len(h.Ranks) == 1 {
		f.Rank = &h.Ranks[0]
	} else {
		f.Ranks = h.Ranks
	}
	return f
}

// Subject returns the ranks that are waited for, or the group if they are unknown.
func (h *Hang) Subject() string {
	if len(h.Ranks) == 0 {
		return "group " + h.Group.String()
	}
	return Ranks(h.Ranks)
}

// Where returns the operation that hangs.
func (h *Hang) Where() string {
	return fmt.Sprintf("%s %d of %s", h.Operation, h.Sequence, h.Group)
}

func (h *Hang) chain() []string {
	many := len(h.Ranks) > 1
	does := func(one, several string) string {
		if many {
			return h.Subject() + " " + several
		}
		return h.Subject() + " " + one
	}
	var first string
	switch {
	case len(h.Ranks) == 0 && h.Cause == Mismatched:
		first = h.Detail
	case len(h.Ranks) == 0:
		first = "all ranks of " + h.Group.String() + " entered " + h.Where() + ", which does not end"
	case h.Cause == Missing:
		first = does("has not entered ", "have not entered ") + h.Where()
	case h.Cause == Mismatched && (strings.HasPrefix(h.Detail, "size") || strings.HasPrefix(h.Detail, "element")):
		first = does("passes ", "pass ") + h.Detail + " to " + h.Where()
	case h.Cause == Mismatched:
		first = does("calls ", "call ") + h.Detail + " at " + h.Where()
	case h.Unreadable:
		first = does("left no readable dump", "left no readable dumps") + " and did not finish " + h.Where()
	case h.Cause == Dead:
		first = does("left no dump", "left no dumps") + " and did not finish " + h.Where()
	case len(h.Waiting) == 0:
		first = does("does not finish ", "do not finish ") + h.Where() + ", which the others finished"
	default:
		first = does("entered ", "entered ") + h.Where() + " and its device has not begun it"
	}
	chain := []string{first}
	if len(h.Waiting) > 0 {
		since := ""
		if !h.Since.IsZero() {
			since = " since " + h.Since.Format(time.RFC3339)
		}
		verb := " wait there"
		if len(h.Waiting) == 1 {
			verb = " waits there"
		}
		chain = append(chain, Ranks(h.Waiting)+verb+since)
	}
	if n := len(h.Elsewhere); n > 0 {
		chain = append(chain, finding.Count(int64(n), "other rank waits", "other ranks wait")+" for them")
	}
	return chain
}

// evidence states the newest operation of each rank that is waited for.
func (h *Hang) evidence() string {
	var parts []string
	for _, rank := range h.Ranks[:min(len(h.Ranks), 4)] {
		e := h.Last[rank]
		if e == nil {
			continue
		}
		state := "not finished"
		if e.finished() {
			state = "finished"
		}
		s := fmt.Sprintf("newest operation of rank %d: %s %d of %s, %s", rank, e.Operation, e.Sequence, e.Group, state)
		if f, ok := e.Caller(); ok {
			s += ", at " + finding.Clip(f.String())
		}
		parts = append(parts, s)
	}
	if h.Detail != "" && h.Cause != Mismatched {
		parts = append(parts, h.Detail)
	}
	return strings.Join(parts, "; ")
}

// Caller returns the innermost line of the stack outside PyTorch's distributed package.
func (e *Entry) Caller() (Frame, bool) {
	for _, f := range e.Frames {
		if !strings.Contains(strings.ReplaceAll(f.File, `\`, "/"), "torch/distributed/") {
			return f, true
		}
	}
	return Frame{}, false
}

// Ranks returns ranks for people: "rank 3", "ranks 1 and 4", "ranks 0 to 6 and 8".
func Ranks(ranks []int) string {
	var parts []string
	for i := 0; i < len(ranks); {
		k := i
		for k+1 < len(ranks) && ranks[k+1] == ranks[k]+1 {
			k++
		}
		switch {
		case k-i >= 2:
			parts = append(parts, fmt.Sprintf("%d to %d", ranks[i], ranks[k]))
		default:
			for _, r := range ranks[i : k+1] {
				parts = append(parts, fmt.Sprint(r))
			}
		}
		i = k + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0]
	}
	if len(parts) == 1 {
		return "ranks " + parts[0]
	}
	return "ranks " + strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}
