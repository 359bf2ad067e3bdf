// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"unicode"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// mergedRanks are the ranks of a file that was merged from several, by the prefixes of its process
// ids: "[TP00] 4000", as SGLang merges files, or "rank0: 4000". Process ids, devices and
// correlations are unique within a rank only. While the file is read, the number of the rank is
// above their rankBits.
type mergedRanks map[string]int64

// Limits of merged files.
const (
	rankBits  = 40 // more than process ids and numbers of devices need
	own       = 1<<rankBits - 1
	maxRanks  = 1 << 12
	maxPrefix = 64 // bytes
)

// cut returns the number of the rank of a process id, and the id without its prefix; 0: it has
// none. A number after a word, as in "GPU 0 stream 7", is no process id.
func (m mergedRanks) cut(pid []byte) (n int64, rest []byte) {
	if len(pid) < 2 || pid[0] != '"' {
		return 0, pid
	}
	end := len(pid) - 1
	for end > 1 && '0' <= pid[end-1] && pid[end-1] <= '9' {
		end--
	}
	prefix, rest := pid[1:end], pid[end:len(pid)-1]
	last := bytes.TrimRight(prefix, " ")
	if len(rest) == 0 || len(last) == 0 || len(prefix) > maxPrefix || unicode.IsLetter(rune(last[len(last)-1])) ||
		!bytes.ContainsAny(prefix, "0123456789") {
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
			e.Device = e.Device&own | n<<rankBits
		}
	} else if e.Process >= 0 {
		e.Process = e.Process&own | n<<rankBits
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
// Otherwise a device has the number of its rank, if each rank has one, and a process a negative
// one.
func (m mergedRanks) settle(s *event.Store) (ranks []event.MergedRank) {
	if len(m) == 0 {
		return nil
	}
	names := m.names()
	marked := func(n int64) bool { _, ok := names[n>>rankBits]; return ok && n > own }
	seen := map[event.Track]bool{} // devices and processes, with the number of the rank
	for _, t := range s.Tracks() {
		if marked(t.Outer) {
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
		case !marked(n):
			return n
		case !collide:
			return n & own
		case single:
			return names[n>>rankBits]
		}
		return names[n>>rankBits]<<8 | n&own
	}
	process := func(n int64) int64 {
		switch {
		case !marked(n):
			return n
		case same[event.Track{Outer: n & own}] > 1:
			return -n
		}
		return n & own
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
