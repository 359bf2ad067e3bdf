// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package regression

import (
	"math"
	"time"
)

// The numbers of blocks are sizes of samples, not limits of the finding: with fewer, the correlation of neighbors is
// not known well enough for the interval.
const (
	most     = 32 // blocks of a window; a new one replaces the oldest
	fewest   = most / 2
	shortest = int64(10 * time.Second)
	widths   = 8 // of blocks: 10 s to 21 minutes, each twice the one before
)

// block sums the logarithms of the runs that ended in it.
type block struct {
	sum   float64
	count int64
}

// window is the latest blocks of one width that have runs. The last one is not complete.
type window struct {
	ring    [most]block
	n       int64 // blocks since the first run
	current int64 // the last block's number, in widths since the epoch
}

// last returns the block that is not complete.
func (w *window) last() *block { return &w.ring[(w.n-1)%most] }

// complete appends the complete blocks to list, in order of time.
func (w *window) complete(list []block) []block {
	for i := max(0, w.n-most); i < w.n-1; i++ {
		list = append(list, w.ring[i%most])
	}
	return list
}

// windows is one quantity of a series at every width.
type windows struct {
	of    [widths]window
	sum   float64
	count int64
}

// add adds a value. It returns the widest window that just got so many blocks that a comparison is due, or -1.
func (w *windows) add(x float64, at int64) (due int) {
	w.sum, w.count = w.sum+x, w.count+1
	return w.put(0, block{x, 1}, at/shortest)
}

// put adds runs to the block of that number, or to the last one if they are late. The block that they end is put into
// the window of twice the width.
func (w *windows) put(i int, b block, number int64) (due int) {
	to := &w.of[i]
	if to.n > 0 && number <= to.current {
		last := to.last()
		last.sum, last.count = last.sum+b.sum, last.count+b.count
		return -1
	}
	due = -1
	widest := i == widths-1
	if to.n > 0 && !widest {
		due = w.put(i+1, *to.last(), to.current/2)
	}
	to.n++
	*to.last(), to.current = b, number
	if due < 0 && (to.n == fewest+1 || widest && to.n > 1 && to.n%fewest == 1) {
		due = i
	}
	return due
}

func (w *windows) mean() float64 { return w.sum / float64(w.count) }

// upTo returns the complete blocks of the widest window up to the given one that has enough of them, or nil.
func (w *windows) upTo(widest int, list []block) []block {
	for i := widest; i >= 0; i-- {
		if w.of[i].n > fewest {
			return w.of[i].complete(list)
		}
	}
	return nil
}

// runs counts the runs in blocks.
func runs(list []block) (n int64) {
	for _, x := range list {
		n += x.count
	}
	return n
}

const (
	perHour      = 12
	fewestOfHour = 8
	hours        = 26 // a day, the hour that is compared with it and the present one
)

// hour is the runs of one hour of one day.
type hour struct {
	number  int64 // since the epoch
	list    [perHour]block
	all     block
	example Example
}

// days is the runs of the last day, by hour.
type days struct {
	ring    [hours]hour
	current int64
}

// add adds a value; it returns the hour that is over, if one is.
func (d *days) add(x float64, at int64, run *Example) (over int64, isOver bool) {
	number := at / int64(time.Hour)
	if number > d.current {
		over, isOver = d.current, d.current > 0
		d.current = number
		d.ring[number%hours] = hour{number: number}
	}
	h := &d.ring[d.current%hours] // late values count for the present hour
	b := &h.list[at/int64(time.Hour/perHour)%perHour]
	b.sum, b.count = b.sum+x, b.count+1
	h.all.sum, h.all.count = h.all.sum+x, h.all.count+1
	h.example.choose(run, math.Abs(x-h.all.sum/float64(h.all.count)), at)
	return over, isOver
}

// find returns an hour with enough blocks, or nil.
func (d *days) find(number int64) *hour {
	if d == nil || number <= 0 {
		return nil
	}
	h := &d.ring[number%hours]
	if h.number != number || len(h.blocks(nil)) < fewestOfHour {
		return nil
	}
	return h
}

// blocks appends the blocks that have runs to list.
func (h *hour) blocks(list []block) []block {
	for _, x := range h.list {
		if x.count > 0 {
			list = append(list, x)
		}
	}
	return list
}
