// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// sentAs is what distinguishes the messages of a profile in its collectives.
type sentAs struct {
	group, kernel string
	bytes         int64
}

// transfers returns the bandwidth of the job's collectives by message. A run is as long as the
// shortest of its ranks: the last to arrive does not wait. Runs of which only one rank is known are
// omitted. The longest messages are returned, and how many more there are.
func (a *analysis) transfers() (list []Transfer, more int) {
	type run struct {
		message facts.Message
		length  int64
		ranks   int
	}
	runs := map[straggler.Identity]*run{}
	var order []*run
	for _, x := range a.job {
		for i := range x.collectives {
			c := &x.collectives[i]
			m, ok := x.messages[sentAs{c.Group, c.Name, c.Bytes}]
			if !ok {
				continue
			}
			r := runs[c.Identity()]
			if r == nil {
				r = &run{message: m, length: c.End - c.Start}
				runs[c.Identity()] = r
				order = append(order, r)
			}
			r.ranks++
			r.length = min(r.length, c.End-c.Start)
			r.message.Bytes = max(r.message.Bytes, m.Bytes) // of an uneven exchange, what the busiest rank sends
		}
	}
	sums := map[facts.Message]*Transfer{}
	for _, r := range order {
		if r.ranks < 2 {
			continue
		}
		t := sums[r.message]
		if t == nil {
			t = &Transfer{Transfer: facts.NewTransfer(r.message), Recorded: r.ranks}
			sums[r.message] = t
		}
		t.Add(time.Duration(r.length))
		t.Recorded = min(t.Recorded, r.ranks)
	}
	peak := facts.PeakOf(a.job[0].model)
	if slices.ContainsFunc(a.job, func(x *profile) bool { return x.model != a.job[0].model }) {
		peak = facts.Peak{}
	}
	list = make([]Transfer, 0, len(sums))
	for _, t := range sums {
		t.Compare(t.Time/time.Duration(t.Count), peak, a.job[0].world)
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Transfer) int { return facts.LongerTransfer(&a.Transfer, &b.Transfer) })
	n := min(maxTransfers, len(list))
	return list[:n], len(list) - n
}

// maxTransfers bounds the messages of a job's report; the longest are kept.
const maxTransfers = 200
