// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"slices"
	"strconv"
	"time"
)

const (
	day = 24 * int64(time.Hour)
	// baseSlack keeps the base a week before the first span, for spans that arrive late but began earlier. Perfetto
	// drops what has a negative time.
	baseSlack = 7 * day
	// window is the time from the base on in which a double of microseconds tells nanoseconds apart, 104 days.
	window = int64(1) << 53
	// fine is the time from the base on in which two such doubles differ by the nanoseconds between them to within an
	// eighth of one, 13 days: the step from one double to the next is 2^-13 µs at most.
	fine = int64(1000) << 40
)

// first is the start of the span that sets the base, and 0 when there is none or the base is set: the earliest that is
// not far from the median, for a single span with a broken clock must not decide.
func (w *Writer) first(events []Event) int64 {
	if w.began || len(events) == 0 {
		return 0
	}
	starts := make([]int64, 0, len(events))
	for i := range events {
		if s := events[i].Start; s > 0 {
			starts = append(starts, s)
		}
	}
	if len(starts) == 0 {
		return 0
	}
	slices.Sort(starts)
	i, _ := slices.BinarySearch(starts, starts[len(starts)/2]-window/2)
	return starts[i]
}

// begin writes the head once the first time is known.
func (w *Writer) begin(first int64) {
	if w.began {
		return
	}
	w.began = true
	w.base = max(first-baseSlack, 0) / day * day
	w.buf = append(w.buf, `{"schemaVersion":1,"otelgpuFormat":1,"baseTimeNanoseconds":`...)
	w.buf = strconv.AppendInt(w.buf, w.base, 10)
	w.buf = append(w.buf, ",\"traceEvents\":[\n"...)
}

// holds reports whether a span that starts then is written with its nanosecond.
func (w *Writer) holds(start int64) bool { return !w.began || start >= w.base && start-w.base < window }

// length writes dur such that ts + dur, added as doubles, is the double of the end: speedscope adds them and compares
// ends with starts and with ends. With three decimals the sum is off by the last bit for many slices, so that one of
// two that touch, or end together, seems to overlap the other. It also takes a slice without length for one that ended
// before what began at the same moment, and never closes it, so that one is given a tenth of a nanosecond. What is
// written rounds to the same nanosecond.
func (w *Writer) length(start, end int64) {
	if start == end {
		w.buf = append(w.buf, `,"dur":0.0001`...)
		return
	}
	start, end = start-w.base, end-w.base
	if d := float64(end)/1000 - float64(start)/1000; end < fine && d != float64(end-start)/1000 {
		w.buf = appendFloat(append(w.buf, `,"dur":`...), d)
		return
	}
	w.micros("dur", end-start)
}
