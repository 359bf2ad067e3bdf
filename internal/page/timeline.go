// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"slices"
)

// Limits of a timeline: rows beyond are not drawn and are counted, times are summed into cells that
// are as fine as these allow.
const (
	maxRows      = 256
	shownRows    = 48
	maxCells     = 4096    // of a row
	allCells     = 1 << 18 // of all rows, 64 bytes each
	shownInCells = 40_000
	maxNames     = 20_000
	maxReach     = int64(1) << 55 // ns from the first activity, about a year: later times are from a wrong clock
)

// Classes of activities in a cell.
const (
	computing = iota
	communicating
	copying
	setting
	launching // calls on a thread of the host
	waiting
	classes
)

// timeline holds what ran on each row (a stream of a device) over time, summed into cells of one
// length, a power of two in ns. The length doubles if the time does not fit, so that memory does
// not grow with the profile.
type timeline struct {
	origin int64 // unix ns of cell 0
	length int64
	used   int // cells that any row reaches
	rows   map[rowKey]*row
	names  map[string]int32
	list   []string
	more   int64 // activities of rows beyond the limit
}

// rowKey is a stream of a device, or a thread of the host.
type rowKey struct {
	device, stream int64 // stream: the id of a thread
	host           bool
}

type row struct {
	key   rowKey
	cells []cell
	count int64
	busy  int64 // ns; activities of one stream hardly overlap
}

// cell is a piece of a row. Times beyond its length are of activities that overlap.
type cell struct {
	time    [classes]int64
	longest int64 // of the pieces in it
	name    int32
}

func newTimeline() *timeline {
	return &timeline{length: 1024, rows: map[rowKey]*row{}, names: map[string]int32{}}
}

func (t *timeline) add(key rowKey, start, end int64, class int, name string) {
	if len(t.rows) == 0 {
		t.origin = start
	}
	r := t.rows[key]
	switch {
	case end <= start:
		return
	case start < t.origin-maxReach || end > t.origin+maxReach, r == nil && len(t.rows) >= maxRows:
		t.more++
		return
	case r == nil:
		r = &row{key: key}
		t.rows[key] = r
	}
	for start < t.origin || end-t.origin > maxCells*t.length || t.used*len(t.rows) > allCells {
		t.stretch(start)
	}
	r.count++
	r.busy += end - start
	id := t.name(name)
	for at := start; at < end; {
		i := int((at - t.origin) / t.length)
		next := min(end, t.origin+int64(i+1)*t.length)
		if i >= len(r.cells) {
			r.cells = append(r.cells, make([]cell, i+1-len(r.cells))...)
			t.used = max(t.used, i+1)
		}
		c := &r.cells[i]
		c.time[class] += next - at
		if next-at > c.longest {
			c.longest, c.name = next-at, id
		}
		at = next
	}
}

// stretch extends the side that is too short: by moving the origin while cells are free, else by
// doubling their length.
func (t *timeline) stretch(start int64) {
	if start < t.origin {
		if by := int((t.origin-start)/t.length) + 1; t.origin-start < maxCells*t.length && t.used+by <= maxCells {
			t.origin -= int64(by) * t.length
			t.used += by
			for _, r := range t.rows {
				if len(r.cells) > 0 {
					r.cells = append(make([]cell, by), r.cells...)
				}
			}
			return
		}
	}
	t.length *= 2
	t.used = (t.used + 1) / 2
	for _, r := range t.rows {
		r.cells = halve(r.cells)
	}
}

// halve sums pairs of cells.
func halve(cells []cell) []cell {
	list := make([]cell, (len(cells)+1)/2)
	for i := range list {
		c := cells[2*i]
		if 2*i+1 < len(cells) {
			d := &cells[2*i+1]
			for k := range c.time {
				c.time[k] += d.time[k]
			}
			if d.longest > c.longest {
				c.longest, c.name = d.longest, d.name
			}
		}
		list[i] = c
	}
	return list
}

// name returns a number for a name; 0 for names beyond the limit.
func (t *timeline) name(s string) int32 {
	if id, ok := t.names[s]; ok {
		return id
	}
	if len(t.list) >= maxNames {
		return 0
	}
	s = clip(s)
	t.list = append(t.list, s)
	t.names[s] = int32(len(t.list))
	return int32(len(t.list))
}

// Timeline holds what ran over time, as the page draws it.
type Timeline struct {
	Start  float64  `json:"start"` // unix ms
	Length float64  `json:"length"`
	Count  int      `json:"count"`           // cells of Length ms
	Names  []string `json:"names,omitempty"` // empty: State.Names
	Rows   []Row    `json:"rows"`            // by device and stream
	More   int64    `json:"more,omitempty"`  // rows and activities that are not drawn
}

// Row is a stream. Cells are four numbers each: its index since the cell before, permille of it in
// which something ran, the class with the most time (0 computing, 1 communicating, 2 copying, 3
// setting, 4 launching, 5 waiting), and the index in Names of the longest activity, -1 if it is
// unknown.
type Row struct {
	Device int64   `json:"device"`
	Stream int64   `json:"stream"`
	Host   bool    `json:"host,omitempty"` // Stream is the id of a thread
	Count  int64   `json:"count"`
	Busy   float64 `json:"busy"` // s
	Cells  []int64 `json:"cells"`
}

// shown returns the timeline in at most so many rows and cells; it changes t.
func (t *timeline) shown(rows, cells int) *Timeline {
	if len(t.rows) == 0 {
		return nil
	}
	list := slices.SortedFunc(maps.Values(t.rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(order(a.key.host), order(b.key.host)), cmp.Compare(b.busy, a.busy),
			compareRows(a.key, b.key))
	})
	out := &Timeline{Names: []string{}, More: t.more + int64(max(0, len(list)-rows))}
	list = list[:min(len(list), rows)]
	slices.SortFunc(list, func(a, b *row) int { return compareRows(a.key, b.key) })
	for filled(list) > cells {
		t.length *= 2
		t.used = (t.used + 1) / 2
		for _, r := range list {
			r.cells = halve(r.cells)
		}
	}
	out.Start, out.Length, out.Count = float64(t.origin)/1e6, float64(t.length)/1e6, t.used
	used := map[int32]int64{}
	for _, r := range list {
		x := Row{
			Device: r.key.device, Stream: r.key.stream, Host: r.key.host, Count: r.count,
			Busy: float64(r.busy) / 1e9, Cells: []int64{},
		}
		last := 0
		for i := range r.cells {
			c := &r.cells[i]
			sum, most := int64(0), 0
			for k, v := range c.time {
				if sum += v; v > c.time[most] {
					most = k
				}
			}
			if sum == 0 {
				continue
			}
			name := int64(-1)
			if c.name > 0 {
				n, ok := used[c.name]
				if !ok {
					n = int64(len(out.Names))
					used[c.name] = n
					out.Names = append(out.Names, t.list[c.name-1])
				}
				name = n
			}
			x.Cells = append(x.Cells, int64(i-last), max(1, min(1000, 1000*sum/t.length)), int64(most), name)
			last = i
		}
		out.Rows = append(out.Rows, x)
	}
	return out
}

func filled(list []*row) (n int) {
	for _, r := range list {
		for i := range r.cells {
			if r.cells[i].longest > 0 {
				n++
			}
		}
	}
	return n
}

func order(last bool) int {
	if last {
		return 1
	}
	return 0
}

// compareRows puts threads of the host above the streams.
func compareRows(a, b rowKey) int {
	return cmp.Or(cmp.Compare(order(b.host), order(a.host)), cmp.Compare(a.device, b.device),
		cmp.Compare(a.stream, b.stream))
}
