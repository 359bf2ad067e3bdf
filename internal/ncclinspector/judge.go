// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/busbandwidth"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// noise is by how many µs the times of a collective's kernels differ without consequence: data
// starts to flow before the last rank has arrived.
const noise = 20

// late is a rank that others wait for in a communicator.
type late struct {
	comm   *comm
	rank   int     // in the communicator
	excess float64 // µs in all that the typical rank waited for it
	straggler.LateRank
}

func (l *late) process() Process { return l.comm.processes[l.rank] }

// Findings names late ranks and slow communicators of a recorded job, the most expensive first.
// devices may be nil.
func (j *Job) Findings(devices Devices) []finding.Finding {
	var all []late
	world := j.world()
	for _, c := range j.order {
		arrivals, lengths, counts := c.complete()
		all = append(all, c.late(arrivals, lengths, counts, world)...)
	}
	var out []finding.Finding
	for _, l := range causes(all) {
		out = append(out, j.lateRank(&l, devices))
	}
	for _, s := range j.slow() {
		out = append(out, s.Finding)
	}
	return out
}

// world returns the number of ranks of the largest communicator.
func (j *Job) world() (n int) {
	for c := range j.comms {
		n = max(n, c.Ranks)
	}
	return n
}

func (c *comm) late(arrivals [][]float64, lengths []float64, counts []int, world int) (out []late) {
	if len(arrivals) == 0 {
		return nil
	}
	for _, l := range straggler.LateRanks(arrivals, stepOf(lengths, counts), max(world, c.Ranks)) {
		out = append(out, late{c, l.Rank, l.Excess * float64(len(arrivals)), l})
	}
	return out
}

// stepOf returns the length in µs of which ranks may differ by [straggler.Material].
func stepOf(lengths []float64, counts []int) float64 {
	length, count := 0.0, 0
	for i, v := range lengths {
		length += v
		count += counts[i]
	}
	return max(length, noise/straggler.Material*float64(count)) / float64(len(lengths))
}

// causes removes ranks that are late in one communicator because they waited in another, and keeps
// one statement for each process.
func causes(all []late) []late {
	explained := func(l *late) bool {
		return slices.ContainsFunc(all, func(o late) bool {
			if o.comm == l.comm || o.process() == l.process() {
				return false
			}
			there := slices.Index(o.comm.processes, l.process())
			return there >= 0 && 2*o.comm.waited[there] >= l.excess &&
				!slices.ContainsFunc(all, func(v late) bool { return v.comm == o.comm && v.rank == there })
		})
	}
	kept := map[Process]*late{}
	for i := range all {
		l := &all[i]
		if l.process() == (Process{}) || explained(l) {
			continue
		}
		if k := kept[l.process()]; k == nil || k.excess < l.excess {
			kept[l.process()] = l
		}
	}
	var out []late
	for i := range all {
		if kept[all[i].process()] == &all[i] {
			out = append(out, all[i])
		}
	}
	slices.SortStableFunc(out, func(a, b late) int { return cmp.Compare(b.excess, a.excess) })
	return out
}

// lateRank returns the finding on a late rank.
func (j *Job) lateRank(l *late, devices Devices) finding.Finding {
	sure := finding.Low
	switch {
	case l.Sure():
		sure = finding.High
	case l.Likely():
		sure = finding.Medium
	}
	rank, known := j.Rank(l.process())
	facts := finding.Late{
		Rank: rank, Last: "collectives of " + l.comm.name, Each: time.Duration(l.excess) * time.Microsecond,
	}
	if !known {
		facts.Who = fmt.Sprintf("rank %d of %s", l.rank, l.comm.name)
	}
	f := finding.LateRank(&facts, semconv.FindingLateRankLiveThreshold, sure)
	if l.Steps > 0 {
		f.Evidence = fmt.Sprintf("its kernels are the shortest in %d of %d parts of %d collectives (chance: %.1f); ",
			l.Hits, l.Steps, l.comm.matched, float64(l.Steps)/float64(l.comm.Ranks))
	}
	f.Evidence += fmt.Sprintf("process %d on %s", l.process().PID, l.process().Host)
	if d, ok := devices[Member{l.comm.Hash, l.rank}]; ok {
		f.Evidence += ", " + d.String()
	}
	f.Remedy = "see what the rank does before these collectives: its data loader, its host, its device's clock and power"
	return f
}

// Rank returns the rank of a process in the largest communicator, which usually is its rank in the
// job. A process with several devices has none.
func (j *Job) Rank(p Process) (rank int64, ok bool) {
	world := j.world()
	rank = -1
	for _, c := range j.order {
		if c.Ranks != world {
			continue
		}
		for r, q := range c.processes {
			switch {
			case q != p:
			case rank >= 0 && rank != int64(r):
				return -1, false
			default:
				rank = int64(r)
			}
		}
	}
	return rank, rank >= 0
}

// shape is what transfers must have in common to be compared.
type shape struct {
	operation    string
	bytes        uint64
	ranks, nodes int
}

// slowComm is a communicator whose transfers take long.
type slowComm struct {
	*comm
	finding.Finding
}

// leastRuns is the least number of transfers that are compared.
const leastRuns = 3

// slow returns findings on communicators whose transfers take much longer than in another
// communicator with as many ranks and nodes.
func (j *Job) slow() (out []slowComm) {
	type run struct {
		*comm
		*transfers
		middle float64
	}
	shapes := map[shape][]run{}
	for _, c := range j.order {
		for op, g := range c.rings {
			for bytes, t := range g.transfers {
				if t.count >= leastRuns {
					k := shape{op, bytes, c.Ranks, c.nodes}
					shapes[k] = append(shapes[k], run{c, t, t.quantile(0.5)})
				}
			}
		}
	}
	type excess struct {
		total, worst float64 // µs
		ratio        float64 // of the worst
		finding.Finding
	}
	found := map[*comm]*excess{}
	for k, runs := range shapes {
		best := slices.MinFunc(runs, func(a, b run) int { return cmp.Compare(a.middle, b.middle) })
		for _, r := range runs {
			// In three of four runs it takes longer than the limit.
			if r.quantile(1-semconv.FindingLateRankSlowSteps) <= semconv.FindingLateRankSlowGroup*best.middle ||
				r.middle-best.middle < noise {
				continue
			}
			e := found[r.comm]
			if e == nil {
				e = &excess{Finding: finding.New(semconv.GPUFindingKindSlowGroup, finding.Medium)}
				found[r.comm] = e
			}
			costs := (r.middle - best.middle) * float64(r.count)
			if e.total += costs; costs <= e.worst {
				continue
			}
			e.worst = costs
			e.Subject, e.ratio = "communicator "+r.name, r.middle/best.middle
			e.Evidence = fmt.Sprintf("%s of %d bytes takes %s after the last rank has arrived, and %s in communicator %s; "+
				"%d runs; ranks of %s", k.operation, k.bytes, finding.Duration(1e3*r.middle), finding.Duration(1e3*best.middle),
				best.name, r.count, hosts(r.comm))
		}
	}
	for _, c := range j.order {
		if e := found[c]; e != nil {
			e.Gain = time.Duration(e.total) * time.Microsecond
			e.Chain = []string{
				fmt.Sprintf("transfers of communicator %s take %.1f times as long as elsewhere", c.name, e.ratio),
				"all its ranks wait, and no rank is the cause",
			}
			out = append(out, slowComm{c, e.Finding})
		}
	}
	slices.SortStableFunc(out, func(a, b slowComm) int { return cmp.Compare(b.Gain, a.Gain) })
	return out
}

// hosts names the hosts of a communicator.
func hosts(c *comm) string {
	var list []string
	for _, p := range c.processes {
		if p.Host != "" && !slices.Contains(list, p.Host) {
			list = append(list, p.Host)
		}
	}
	if n := len(list); n > 4 {
		return finding.Clip(fmt.Sprintf("%s, %s and %d other hosts", list[0], list[1], n-2))
	}
	return finding.Clip(fmt.Sprint(list))
}

// Summary is the time of an operation on all ranks of a communicator.
type Summary struct {
	Operation, Communicator string
	Count                   uint64
	Mean                    time.Duration // of a rank's kernel, the wait for the last rank included
	BusBandwidth            float64       // B/s, as NCCL's tests define it; 0: not defined
}

// maxSummaries bounds the summaries.
const maxSummaries = 40

// Summary returns the operations of all communicators, the longest first.
func (j *Job) Summary() []Summary {
	type key struct {
		comm      *comm
		operation string
	}
	type sum struct {
		key
		count, micros uint64
		bus           float64
	}
	sums := map[key]*sum{}
	for _, s := range j.streams {
		k := key{s.comm, s.source.Operation}
		v := sums[k]
		if v == nil {
			v = &sum{key: k}
			sums[k] = v
		}
		v.count += s.Count
		v.micros += s.Micros
		v.bus += s.busBytes()
	}
	list := slices.SortedFunc(maps.Values(sums), func(a, b *sum) int {
		return cmp.Or(cmp.Compare(b.micros, a.micros), cmp.Compare(a.comm.name, b.comm.name),
			cmp.Compare(a.operation, b.operation))
	})
	out := make([]Summary, 0, min(len(list), maxSummaries))
	for _, v := range list[:cap(out)] {
		s := Summary{
			Operation: v.operation, Communicator: v.comm.name, Count: v.count,
			Mean: time.Duration(float64(v.micros) / float64(max(1, v.count)) * 1e3),
		}
		if v.micros > 0 {
			s.BusBandwidth = v.bus / (float64(v.micros) / 1e6)
		}
		out = append(out, s)
	}
	return out
}

// busBytes returns how many bytes each link carried at least.
func (s *stream) busBytes() float64 {
	n := float64(s.source.Comm.Ranks)
	bytes := float64(s.Bytes) * busbandwidth.Factor(s.source.Operation, n)
	switch s.source.Operation {
	case semconv.GPUCollectiveNameAllGather, semconv.GPUCollectiveNameReduceScatter:
		bytes *= n // Inspector states the part of one rank
	}
	return bytes
}
