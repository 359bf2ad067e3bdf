// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

// Sums are what one rank did since the last report.
type Sums struct {
	*Source
	JobRank         int64 // -1: not known
	Count           uint64
	Seconds         float64
	Bytes, BusBytes float64
}

// Waits are how long one rank waited, and was waited for, since the last report.
type Waits struct {
	Comm         CommID
	CommName     string // empty: not stated
	Rank         int    // in the communicator
	Process      Process
	JobRank      int64   // -1: not known
	Waited, Late float64 // s
}

// Found is a finding of a live job.
type Found struct {
	finding.Finding
	Group   string // name of the communicator
	JobRank int64  // -1: none, or not known
}

// Report is what happened since the last report.
type Report struct {
	Sums     []Sums
	Waits    []Waits
	Findings []Found
}

const (
	// again is how long a finding is not repeated.
	again = 10 * time.Minute
	// forget is how long a communicator without lines is kept.
	forget = time.Hour
)

// Report returns what happened since the last report, and begins the next one. Call it at equal
// intervals: each of them is a step of the tests for late ranks.
func (j *Job) Report(now time.Time, devices Devices) (r Report) {
	at := now.UnixNano()
	ranks := map[Process]int64{}
	rankOf := func(p Process) int64 {
		rank, ok := ranks[p]
		if !ok {
			rank, _ = j.Rank(p)
			ranks[p] = rank
		}
		return rank
	}
	for _, s := range j.streams {
		d := stream{source: s.source, Count: s.Count - s.reported.Count, Bytes: s.Bytes - s.reported.Bytes}
		if d.Count == 0 {
			continue
		}
		r.Sums = append(r.Sums, Sums{
			Source: s.source, JobRank: rankOf(s.source.Process), Count: d.Count,
			Seconds: float64(s.Micros-s.reported.Micros) / 1e6, Bytes: float64(d.Bytes), BusBytes: d.busBytes(),
		})
		s.reported.Count, s.reported.Micros, s.reported.Bytes = s.Count, s.Micros, s.Bytes
	}
	var all []late
	for _, c := range j.order {
		if c.active {
			c.seen, c.active = at, false
		}
		if len(c.arrivals) == 0 || c.counts[0] == 0 {
			continue
		}
		row := c.arrivals[0]
		for rank, p := range c.processes {
			if p != (Process{}) {
				r.Waits = append(r.Waits, Waits{
					c.CommID, c.label, rank, p, rankOf(p), c.waited[rank] / 1e6, row[rank] / 1e6,
				})
			}
		}
		all = append(all, c.judge(row)...)
	}
	for _, l := range causes(all) {
		if last, ok := l.comm.reported[l.rank]; !ok || at-last >= int64(again) {
			if l.comm.reported == nil {
				l.comm.reported = map[int]int64{}
			}
			l.comm.reported[l.rank] = at
			f := j.lateRank(&l, devices)
			f.Certainty = finding.Medium
			r.Findings = append(r.Findings, Found{f, l.comm.name, rankOf(l.process())})
		}
	}
	for _, s := range j.slow() {
		if s.slowAt == 0 || at-s.slowAt >= int64(again) {
			s.slowAt = at
			r.Findings = append(r.Findings, Found{s.Finding, s.name, -1})
		}
	}
	for _, c := range j.order {
		if len(c.arrivals) > 0 {
			clear(c.arrivals[0])
			c.lengths[0], c.counts[0] = 0, 0
		}
		clear(c.waited)
	}
	j.expire(at - int64(forget))
	return r
}

// judge adds an interval to the history of a communicator, and returns the ranks that are late by
// it.
func (c *comm) judge(row []float64) (out []late) {
	step := stepOf(c.lengths[:1], c.counts[:1])
	ranks := make([]straggler.Rank, c.Ranks)
	for i, v := range row {
		ranks[i] = straggler.Rank{Rank: int64(i), Own: (step + v) / 1e6, Step: step / 1e6}
	}
	for i, v := range c.history.Compare([][]straggler.Rank{ranks}, false)[0].Results {
		if v.Slow {
			excess := 1e6 * (ranks[i].Own - v.Median)
			out = append(out, late{comm: c, rank: i, excess: excess, LateRank: straggler.LateRank{P: 1}})
		}
	}
	return out
}

// expire forgets communicators whose last line was reported before a time.
func (j *Job) expire(before int64) {
	j.order = slices.DeleteFunc(j.order, func(c *comm) bool {
		if c.seen >= before {
			return false
		}
		for _, g := range c.rings {
			j.pending -= len(g.exec)
		}
		j.members -= c.Ranks
		delete(j.comms, c.CommID)
		for key, s := range j.streams {
			if s.comm == c {
				s.comm = nil
				delete(j.streams, key)
			}
		}
		return true
	})
}
