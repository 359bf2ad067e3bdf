// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/hex"
	"slices"
	"strconv"
)

// open starts an event of a phase; every record is on its own line.
func (w *Writer) open(ph string) {
	if !w.empty {
		w.buf = append(w.buf, ",\n"...)
	}
	w.empty = false
	w.buf = append(w.buf, `{"ph":"`...)
	w.buf = append(append(w.buf, ph...), '"')
}

func (w *Writer) str(key, v string) {
	w.buf = append(append(append(w.buf, `,"`...), key...), `":`...)
	w.buf = appendString(w.buf, v)
}

func (w *Writer) num(key string, v int64) {
	w.buf = append(append(append(w.buf, `,"`...), key...), `":`...)
	w.buf = strconv.AppendInt(w.buf, v, 10)
}

func (w *Writer) micros(key string, ns int64) {
	w.buf = append(append(append(w.buf, `,"`...), key...), `":`...)
	w.buf = appendMicros(w.buf, ns)
}

func (w *Writer) at(pid, tid, ts int64) {
	w.num("pid", pid)
	w.num("tid", tid)
	w.micros("ts", ts-w.base)
}

func (w *Writer) slice(e *Event, p *process, tid, start, end int64) {
	w.head(e, p.pid, tid, start, end)
	w.buf = appendArgs(w.buf, e.Args)
	w.optional("span.kind", e.Kind)
	w.optional("otel.status_code", e.Status)
	w.optional("otel.status_description", e.Message)
	if len(e.Links) > 0 {
		w.buf = appendValue(appendKey(w.buf, "links"), List(e.Links))
	}
	w.tail(e)
}

func (w *Writer) optional(key, v string) {
	if v != "" {
		w.buf = appendString(appendKey(w.buf, key), v)
	}
}

// head writes a slice up to the arguments that its fields become.
func (w *Writer) head(e *Event, pid, tid, start, end int64) {
	w.open("X")
	w.optional("cat", e.Category)
	w.str("name", e.Name)
	w.at(pid, tid, start)
	w.length(start, end)
	w.buf = append(w.buf, `,"args":{`...)
	if e.Track.Kind >= DeviceSteps {
		w.buf = strconv.AppendInt(append(w.buf, `"device":`...), e.Track.Device, 10)
		if e.Track.ID >= 0 {
			w.buf = strconv.AppendInt(append(w.buf, `,"stream":`...), e.Track.ID, 10)
		}
	}
	if e.Correlation != 0 {
		w.buf = strconv.AppendInt(appendKey(w.buf, "correlation"), e.Correlation, 10)
	}
}

// tail writes the ids and the end of a slice.
func (w *Writer) tail(e *Event) {
	w.id("trace_id", e.Trace[:])
	w.id("span_id", e.Span[:])
	w.id("parent_span_id", e.Parent[:])
	w.buf = append(w.buf, "}}"...)
}

// id appends an identifier in hex unless it is all zero.
func (w *Writer) id(key string, v []byte) {
	if !slices.ContainsFunc(v, func(c byte) bool { return c != 0 }) {
		return
	}
	w.buf = append(appendKey(w.buf, key), '"')
	w.buf = append(hex.AppendEncode(w.buf, v), '"')
}

// mark writes an event of the span whose slice was written last, with its span_id.
func (w *Writer) mark(m *Mark, e *Event, pid, tid int64) {
	if m.Time < w.base {
		return
	}
	w.open("i")
	w.str("s", "t")
	w.str("cat", "event")
	w.str("name", m.Name)
	w.at(pid, tid, m.Time)
	w.buf = append(w.buf, `,"args":{`...)
	for i := range m.Args {
		key := m.Args[i].Key
		if key == "" || key == "span_id" {
			key = ownPrefix + key
		}
		w.buf = appendValue(appendKey(w.buf, key), m.Args[i].Value)
	}
	w.id("span_id", e.Span[:])
	w.buf = append(w.buf, "}}"...)
}

// arrow writes both ends. They follow their slices in the file, which is what binds them when times
// are equal.
func (w *Writer) arrow(id int64, from, to flowEnd) {
	end := func(pid, tid, at int64) {
		w.num("id", id)
		w.str("cat", "ac2g")
		w.str("name", "ac2g")
		w.at(pid, tid, at)
		w.buf = append(w.buf, '}')
	}
	w.open("s")
	end(from.pid, from.tid, from.at)
	w.open("f")
	w.str("bp", "e")
	end(to.pid, to.tid, to.start)
	w.stats.Flows++
}

// names writes the metadata of every process and track with events.
func (w *Writer) names() {
	for _, p := range w.order {
		w.meta(p.pid, -1, "process_name", "name", String(p.label))
		w.meta(p.pid, -1, "process_sort_index", "sort_index", Int(p.sort))
		for _, t := range p.order {
			for i, l := range t.lanes {
				label := t.label()
				if i > 0 {
					label += " (" + strconv.Itoa(i+1) + ")"
				}
				w.meta(p.pid, l.tid, "thread_name", "name", String(label))
				// Steps, then host threads, then streams; rows of one track together.
				w.meta(p.pid, l.tid, "thread_sort_index", "sort_index", Int(sortIndex(t.Track, i)))
			}
		}
	}
}

func sortIndex(t Track, row int) int64 {
	id := min(max(t.ID, 0), 1<<12)
	return int64(t.Kind)<<28 + min(t.Device, 15)<<24 + id<<11 + int64(min(row, 1<<11-1))
}

func (w *Writer) meta(pid, tid int64, name, key string, value Value) {
	w.open("M")
	w.str("name", name)
	w.num("pid", pid)
	w.num("tid", max(tid, 0))
	w.buf = append(w.buf, `,"args":{`...)
	w.buf = append(appendValue(append(appendString(w.buf, key), ':'), value), "}}"...)
}
