// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"sort"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
)

// Range is the meaning of a range on a thread of the host.
type Range uint8

// Ranges. RangeOperator and the later ones, except the last, are equally specific about the host.
const (
	RangeNone     Range = iota
	RangeStep           // an iteration: does not explain what the host does in it
	RangeFrame          // a frame of a call stack
	RangeNamed          // a range that the application or its framework named
	RangeOperator       // an operator of the framework
	RangeLoader         // the program waits for data
	RangePeer           // the program waits for other ranks
	CallLaunch          // a call that puts work on a stream
	CallWait            // a call that waits for the device
	CallAllocate        // a call that allocates or frees
	CallOther           // any other call of the runtime or driver
	RangeCompile        // code is made
	RangeSave           // a checkpoint is saved
	RangeProfiler       // the profiler works for itself
	RangeOutside        // the program waits for work from outside: an event loop, a range named so
	RangeCapture        // a graph is captured: from the call that begins it to CallCaptured
	CallCaptured        // ends that
	RangePoll           // a frame that waits for an event: in an event loop for work from outside
	RangeBuiltin        // a frame that explains little by itself: built in, of the standard library, of the system
	rangeCount
)

// weight returns how specific a range is about what the host did; of several threads the most
// specific one counts.
func (r Range) weight() Range {
	if r == RangeBuiltin {
		r = RangeFrame
	}
	return min(r, RangeOperator)
}

// hostState is the state of a thread at a moment: the name of the innermost range, and the named
// range around it.
type hostState struct {
	class Range
	name  uint32
	in    uint32
	since int64 // begin of that range
}

// InnerName marks a second name of a location that is inside the first range instead of around it.
// There are far fewer names than this.
const InnerName = 1 << 27

// named returns the innermost range that is named.
func (d hostState) named() uint32 {
	switch d.class {
	case RangeNamed, RangeOperator, RangeFrame, RangeCompile, RangeSave:
		return d.name
	}
	return d.in &^ InnerName
}

// within returns the state of a thread in a range of the class from start to end that starts in
// state d.
func (d hostState) within(class Range, name uint32, start, end int64) hostState {
	duration := end - start
	in := d.named()
	frame := class == RangeFrame || class == RangeBuiltin
	switch {
	case class == CallCaptured:
		return d
	case class == RangeProfiler || d.class == RangeProfiler:
		return hostState{RangeProfiler, name, in, start}
	case d.class == RangeSave && (class < CallLaunch || class > CallOther):
		if class == RangeStep || name == d.name {
			return d
		}
		return hostState{RangeSave, d.name, name | InnerName, d.since}
	case class == RangeSave:
		return hostState{RangeSave, name, 0, start}
	case d.class == RangeLoader:
		if class >= CallLaunch && class <= CallOther || class == RangeLoader {
			return d
		}
		return hostState{RangeLoader, d.name, name, start}
	case d.class == RangeOutside && (class == RangeLoader || class == RangeBuiltin): // the queue of a server's requests
		return d
	case class == RangeLoader:
		return hostState{RangeLoader, name, 0, start}
	case d.class == RangePeer:
		return d
	case class == RangePeer:
		return hostState{RangePeer, name, in, start}
	case d.class == RangeCompile && (class < CallLaunch || class > CallOther):
		return d
	case class == RangeCompile:
		return hostState{RangeCompile, name, 0, start}
	case class == CallLaunch && duration >= slowCall, class == CallOther && duration >= tinyCall:
		return hostState{CallOther, name, in, start}
	case class == CallLaunch || class == CallOther:
		return hostState{CallLaunch, d.name, d.in, d.since}
	case class == CallWait && d.class == CallWait: // the call in a frame that waits
		return d
	case class == CallWait || class == CallAllocate:
		return hostState{class, name, in, start}
	case class == RangeOutside:
		return hostState{class, name, in, start}
	case class == RangePoll && d.class == RangeOutside:
		return hostState{RangeOutside, name, d.in, start}
	case class == RangePoll:
		return d.within(RangeBuiltin, name, start, end)
	case frame && (d.class == RangeOperator || d.class >= CallLaunch && d.class <= CallOther):
		return d
	case class == RangeBuiltin && d.class == RangeNamed && d.in&InnerName != 0: // whose caller explains more
		return d
	case frame && d.class == RangeNamed, class == RangeBuiltin && d.class == RangeFrame: // whose name explains more
		return hostState{d.class, d.name, name | InnerName, start}
	case frame:
		return hostState{RangeFrame, name, 0, start}
	case class == RangeStep:
		return hostState{class: RangeStep, since: start}
	case d.class == RangeOperator:
		return hostState{class, name, d.in, start}
	}
	return hostState{class, name, in, start}
}

// Log is what one thread of the host did, moment by moment, as far as it is still needed.
type Log struct {
	stack  []openRange
	done   []piece   // by start, without overlap; holes are moments outside of all ranges
	cursor int64     // up to which done is complete
	next   int       // length of done at which it is trimmed again
	holds  hostState // while a graph is captured, this state overrides the thread

	history *History // nil: not kept
}

type openRange struct {
	end int64
	hostState
}

type piece struct {
	start, end int64
	hostState
}

// logPieces is how many pieces a log keeps before it joins neighbours.
const logPieces = 1 << 13

// Add adds a range; ranges arrive by start, longer ones first. keep returns the time from which the
// log may be queried.
func (l *Log) Add(start, end int64, class Range, name uint32, keep func() int64) {
	for len(l.stack) > 0 && l.stack[len(l.stack)-1].end <= start {
		top := l.stack[len(l.stack)-1]
		l.stack = l.stack[:len(l.stack)-1]
		l.emit(top.end, top.hostState)
	}
	if end <= start {
		return
	}
	var d hostState
	if n := len(l.stack); n > 0 {
		d = l.stack[n-1].hostState
		l.emit(start, d)
	} else if l.holds.class != RangeNone {
		l.emit(start, d)
	}
	switch class {
	case RangeCapture:
		l.holds = hostState{RangeCapture, name, d.named(), start}
	case CallCaptured:
		if l.holds.class == RangeNone { // it began before the profile
			class = CallOther
		}
		d, l.holds = l.holds, hostState{}
	case CallWait: // not while a graph is captured: the end is not in the file
		l.holds = hostState{}
	}
	l.cursor = max(l.cursor, start)
	l.stack = append(l.stack, openRange{end, d.within(class, name, start, end)})
	if len(l.done) >= max(l.next, 256) {
		l.Trim(keep())
		if len(l.done) > logPieces {
			l.join()
		}
		l.next = 2 * len(l.done)
	}
}

func (l *Log) emit(to int64, d hostState) {
	if to <= l.cursor {
		return
	}
	if l.holds.class != RangeNone {
		d = l.holds
	}
	if l.history != nil && d.class != RangeNone {
		l.history.add(l.cursor, to, d)
	}
	if n := len(l.done); n > 0 && l.done[n-1].hostState == d && l.done[n-1].end == l.cursor {
		l.done[n-1].end = to
	} else {
		if n == cap(l.done) {
			l.done = slices.Grow(l.done, max(n, 64))
		}
		l.done = append(l.done, piece{l.cursor, to, d})
	}
	l.cursor = to
}

// Trim drops what ended before a time from which the log may be queried.
func (l *Log) Trim(before int64) {
	before -= clockSlack
	n := sort.Search(len(l.done), func(i int) bool { return l.done[i].end > before })
	l.done = rest(l.done, n)
}

// join merges each two neighboring pieces, under the name of the longer one. A hole between them
// stays.
func (l *Log) join() {
	keep := l.done[:0]
	for i := 0; i < len(l.done); i++ {
		p := l.done[i]
		if i+1 < len(l.done) && l.done[i+1].start == p.end {
			if n := l.done[i+1]; n.end-n.start > p.end-p.start {
				p.hostState = n.hostState
			}
			p.end = l.done[i+1].end
			i++
		}
		keep = append(keep, p)
	}
	if len(keep) > logPieces { // many holes: they are joined too
		half := keep[:0]
		for i := 0; i < len(keep); i += 2 {
			p := keep[i]
			if i+1 < len(keep) {
				p.end = keep[i+1].end
			}
			half = append(half, p)
		}
		keep = half
	}
	l.done = keep
}

// over appends what the thread did in [from, to) to list: pieces without overlaps or gaps.
func (l *Log) over(list []piece, from, to int64) []piece {
	at := from
	open := func(d hostState) hostState {
		if l.holds.class != RangeNone {
			return l.holds
		}
		return d
	}
	put := func(end int64, d hostState) {
		if end = min(end, to); end > at {
			list = append(list, piece{at, end, d})
			at = end
		}
	}
	for i := sort.Search(len(l.done), func(i int) bool { return l.done[i].end > from }); i < len(l.done) && at < to; i++ {
		put(l.done[i].start, hostState{})
		put(l.done[i].end, l.done[i].hostState)
	}
	if at < l.cursor {
		put(l.cursor, hostState{})
	}
	for i := len(l.stack) - 1; i >= 0 && at < to; i-- {
		put(l.stack[i].end, open(l.stack[i].hostState))
	}
	put(to, open(hostState{}))
	return list
}

// Longest returns the frame in which the thread was for longest in [from, to), and for how long.
func (l *Log) Longest(from, to int64) (name uint32, time int64) {
	if l.cursor <= from && len(l.stack) == 0 {
		return 0, 0
	}
	times := map[uint32]int64{}
	for _, p := range l.over(nil, from, to) {
		if p.class != RangeFrame {
			continue
		}
		n := p.name
		if p.in&InnerName != 0 {
			n = p.in &^ InnerName
		}
		times[n] += p.end - p.start
	}
	name = boundedmap.Largest(times)
	return name, times[name]
}
