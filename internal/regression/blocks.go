// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package regression

import "time"

const (
	most     = 32 // blocks of a side; then two become one, of twice the length
	fewest   = most / 2
	shortest = int64(10 * time.Second)
)

// block sums the logarithms of the runs that ended in it.
type block struct {
	sum   float64
	count int64
}

// blocks is a side's blocks in order of time. The last one is not complete.
type blocks struct {
	list    [most]block
	n       int
	width   int64 // ns; 0 is shortest
	current int64 // the last block's number, in widths since the epoch
	sum     float64
	count   int64
}

// add adds a value; it reports whether there are now so many complete blocks that a comparison is due. A late value is
// added to the last block.
func (b *blocks) add(x float64, at int64) (due bool) {
	if b.width == 0 {
		b.width = shortest
	}
	if number := at / b.width; b.n == 0 || number > b.current {
		if b.n == most {
			for i := range fewest {
				first, second := b.list[2*i], b.list[2*i+1]
				b.list[i] = block{first.sum + second.sum, first.count + second.count}
			}
			b.n, b.width = fewest, 2*b.width
		}
		b.list[b.n] = block{}
		b.n++
		b.current = at / b.width
		due = b.n == fewest+1
	}
	last := &b.list[b.n-1]
	last.sum, last.count = last.sum+x, last.count+1
	b.sum, b.count = b.sum+x, b.count+1
	return due
}

func (b *blocks) complete() []block { return b.list[:max(0, b.n-1)] }

func (b *blocks) mean() float64 { return b.sum / float64(b.count) }

// runs counts the runs in complete blocks.
func (b *blocks) runs() (n int64) {
	for _, x := range b.complete() {
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
	h.example.choose(run, 0, at)
	return over, isOver
}

func (d *days) find(number int64) *hour {
	if h := &d.ring[number%hours]; number > 0 && h.number == number {
		return h
	}
	return nil
}

// blocks returns the blocks that have runs, and an empty one behind them as the one that is not complete.
func (h *hour) blocks() *blocks {
	b := &blocks{}
	for _, x := range h.list {
		if x.count > 0 {
			b.list[b.n] = x
			b.n++
		}
	}
	b.n++
	return b
}
