// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// mergedRanks are the ranks of a file that was merged from several, by the prefixes of its process
// ids: "[TP00] 4000", as SGLang merges files, or "rank0: 4000". Process ids, devices and
// correlations are unique within a rank only. While the file is read, the number of the rank is
// above their rankBits.
type mergedRanks map[string]int64

// rankBits are more than process ids and numbers of devices need, and maxRanks bounds the ranks.
const rankBits, maxRanks = 40, 1 << 12

// cut returns the number of the rank of a process id, and the id without its prefix; 0: it has none.
func (m mergedRanks) cut(pid []byte) (n int64, rest []byte) {
	if len(pid) < 2 || pid[0] != '"' {
		return 0, pid
	}
	end := len(pid) - 1
	for end > 1 && '0' <= pid[end-1] && pid[end-1] <= '9' {
		end--
	}
	prefix, rest := pid[1:end], pid[end:len(pid)-1]
	if len(rest) == 0 || !slices.ContainsFunc(prefix, func(c byte) bool { return '0' <= c && c <= '9' }) {
		return 0, pid
	}
	if n = m[string(prefix)]; n == 0 && len(m) < maxRanks {
		n = int64(len(m)) + 1
		m[string(prefix)] = n
	}
	return n, rest
}

func (m mergedRanks) mark(e *event.Event, n int64) {
	if e.Kind.Device() {
		if e.Device >= 0 {
			e.Device |= n << rankBits
		}
	} else if e.Process >= 0 {
		e.Process |= n << rankBits
	}
	if (e.Kind.Device() || e.Kind == event.KindRuntime) && e.Correlation != 0 {
		e.Correlation |= n << event.CorrelationBits
	}
}

// names returns the ranks by the numbers of their prefixes: a number in each prefix that differs in
// all of them, otherwise their order.
func (m mergedRanks) names() map[int64]int64 {
	prefixes := slices.Sorted(maps.Keys(m))
	out := map[int64]int64{}
	for at := 0; ; at++ {
		clear(out)
		seen := map[int64]bool{}
		for _, p := range prefixes {
			list := digits.FindAllString(p, at+1)
			if len(list) <= at {
				for i, p := range prefixes {
					out[m[p]] = int64(i)
				}
				return out
			}
			rank, _ := strconv.ParseInt(list[at], 10, 64) // too large a number equals another
			out[m[p]], seen[rank] = rank, true
		}
		if len(seen) == len(prefixes) {
			return out
		}
	}
}

var digits = regexp.MustCompile(`\d+`)

// settle gives processes and devices the numbers that the file states if no other rank has them.
// Otherwise a device has the number of its rank, if each rank has one, and a process a negative one.
func (m mergedRanks) settle(s *event.Store) (ranks []event.MergedRank) {
	const own = 1<<rankBits - 1
	names := m.names()
	seen := map[event.Track]bool{} // devices and processes, with the number of the rank
	for _, t := range s.Tracks() {
		if t.Outer > own {
			seen[event.Track{Device: t.Device, Outer: t.Outer}] = true
		}
	}
	same := map[event.Track]int{} // ranks with the number
	of := map[int64]int{}         // devices of a rank
	for t := range seen {
		if t.Device {
			of[t.Outer>>rankBits]++
		}
		t.Outer &= own
		same[t]++
	}
	single, collide := true, false
	for _, n := range of {
		single = single && n == 1
	}
	for t, n := range same {
		collide = collide || t.Device && n > 1
	}
	device := func(n int64) int64 {
		switch {
		case n <= own || !collide:
			return n & own
		case single:
			return names[n>>rankBits]
		}
		return names[n>>rankBits]<<8 | n&own
	}
	process := func(n int64) int64 {
		if n > own && same[event.Track{Outer: n & own}] > 1 {
			return -n
		}
		if n > own {
			return n & own
		}
		return n
	}
	byRank := map[int64]*event.MergedRank{}
	for n, rank := range names {
		byRank[n] = &event.MergedRank{Rank: rank, Processes: map[int64]bool{}, Devices: map[int64]bool{}}
	}
	for t := range seen {
		r := byRank[t.Outer>>rankBits]
		if t.Device {
			r.Devices[device(t.Outer)] = true
		} else {
			r.Processes[process(t.Outer)] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(byRank)) {
		ranks = append(ranks, *byRank[n])
	}
	s.Rename(process, device)
	return ranks
}
