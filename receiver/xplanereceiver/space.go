// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields (tsl/profiler/protobuf/xplane.proto).
const (
	spacePlane, spaceError, spaceWarning, spaceHost protowire.Number = 1, 2, 3, 4

	planeName, planeLine, planeEvents, planeStats, planeStat protowire.Number = 2, 3, 4, 5, 6

	lineID, lineName, lineTime, lineEvent, lineDisplayName protowire.Number = 1, 2, 3, 4, 11

	entryKey, entryValue protowire.Number = 1, 2

	metaID, metaName, metaDisplayName, metaStat protowire.Number = 1, 2, 4, 5
)

// Limits of what is kept of a file.
const (
	maxTables = 64 << 20 // bytes of the names and statistics in tables
	maxText   = 1 << 20  // bytes of one entry, event or name
	maxRows   = 1 << 16  // planes and lines
	maxFaults = 8
)

// space is what a file states apart from its events.
type space struct {
	planes []*plane
	host   string
	faults []string
	rows   int   // planes and lines
	room   int   // of maxTables
	lost   int64 // entries of tables beyond it
}

// plane is a device, or a part of the host.
type plane struct {
	name   string
	events map[int64]*described
	names  map[int64]string // of statistics, and texts that statistics refer to
	stats  [][]byte         // of the plane itself
	lines  []line

	ordinal     int64 // of the device
	device, gpu bool
}

// described is the entry of a table for events.
type described struct {
	name, display string
	stats         [][]byte
	facts         *facts // of stats; nil: not decoded yet
}

// line is a row of events.
type line struct {
	id        int64
	name      string
	start     int64 // ns; of its events' offsets
	runtimeTo int64 // ns: a call of XLA is open until then, whose inner ranges are not the program's
}

// tables reads everything but events.
func (x *space) tables(w *wire) error {
	x.room = maxTables
	for {
		num, t, err := w.field(whole)
		if err != nil || num == 0 {
			return err
		}
		switch num {
		case spacePlane:
			err = x.plane(w, t)
		case spaceError, spaceWarning, spaceHost:
			var s string
			if s, err = w.text(t, whole); num == spaceHost && x.host == "" {
				x.host = s
			} else if num != spaceHost && len(x.faults) < maxFaults {
				x.faults = append(x.faults, "the profiler says: "+s)
			}
		default:
			err = w.skip(t, whole)
		}
		if err != nil {
			return err
		}
	}
}

// text takes a text; longer ones than maxText are empty.
func (w *wire) text(t protowire.Type, end int64) (string, error) {
	stop, err := w.inner(t, end)
	if err != nil {
		return "", err
	}
	b, err := w.take(stop, maxText)
	return string(b), err
}

func (x *space) plane(w *wire, t protowire.Type) error {
	end, err := w.inner(t, whole)
	if err != nil {
		return err
	}
	if x.rows++; x.rows > maxRows {
		return w.broken("more than %d planes and lines", maxRows)
	}
	p := &plane{events: map[int64]*described{}, names: map[int64]string{}}
	x.planes = append(x.planes, p)
	for {
		num, t, err := w.field(end)
		if err != nil || num == 0 {
			return err
		}
		switch num {
		case planeName:
			p.name, err = w.text(t, end)
		case planeLine:
			err = x.line(w, p, t, end)
		case planeEvents, planeStats, planeStat:
			var stop int64
			var b []byte
			if stop, err = w.inner(t, end); err == nil {
				b, err = w.take(stop, maxText)
			}
			if err == nil {
				err = x.entry(p, num, b)
			}
		default:
			err = w.skip(t, end)
		}
		if err != nil {
			return err
		}
	}
}

// entry keeps an entry of a plane's tables, or one of its statistics. The programs in
// /host:metadata are not used.
func (x *space) entry(p *plane, num protowire.Number, b []byte) error {
	if strings.HasPrefix(p.name, "/host:metadata") && num == planeEvents {
		return nil
	}
	const overhead = 128
	if x.room -= len(b) + overhead; b == nil || x.room < 0 {
		x.lost++
		return nil
	}
	if num == planeStat {
		p.stats = append(p.stats, []byte(string(b)))
		return nil
	}
	var id int64
	var value []byte
	if err := each(b, func(num protowire.Number, n uint64, b []byte) {
		switch num {
		case entryKey:
			id = int64(n)
		case entryValue:
			value = b
		}
	}); err != nil {
		return err
	}
	d := &described{}
	err := each(value, func(num protowire.Number, n uint64, b []byte) {
		switch num {
		case metaID:
			id = int64(n)
		case metaName:
			d.name = string(b)
		case metaDisplayName:
			d.display = string(b)
		case metaStat:
			d.stats = append(d.stats, []byte(string(b)))
		}
	})
	if num == planeStats {
		p.names[id] = d.name
	} else {
		p.events[id] = d
	}
	return err
}

// line reads the head of a row.
func (x *space) line(w *wire, p *plane, t protowire.Type, end int64) error {
	stop, err := w.inner(t, end)
	if err != nil {
		return err
	}
	if x.rows++; x.rows > maxRows {
		return w.broken("more than %d planes and lines", maxRows)
	}
	var l line
	for {
		num, t, err := w.field(stop)
		if err != nil {
			return err
		}
		switch num {
		case 0:
			p.lines = append(p.lines, l)
			return nil
		case lineID, lineTime:
			if t != protowire.VarintType {
				return w.broken("the field %d of a line is no number", num)
			}
			var v uint64
			if v, err = w.varint(stop); num == lineID {
				l.id = int64(v)
			} else {
				l.start = int64(v)
			}
		case lineName:
			var s string
			if s, err = w.text(t, stop); l.name == "" {
				l.name = s
			}
		case lineDisplayName:
			var s string
			if s, err = w.text(t, stop); s != "" {
				l.name = s
			}
		default:
			err = w.skip(t, stop)
		}
		if err != nil {
			return err
		}
	}
}

// events calls f for each event, in the order of the file, with its plane and line.
func (x *space) events(w *wire, f func(p *plane, l *line, b []byte) error) error {
	for i := 0; ; {
		num, t, err := w.field(whole)
		if err != nil || num == 0 {
			return err
		}
		if num != spacePlane || i == len(x.planes) {
			if err := w.skip(t, whole); err != nil {
				return err
			}
			continue
		}
		p := x.planes[i]
		i++
		if err := p.each(w, t, f); err != nil {
			return err
		}
	}
}

func (p *plane) each(w *wire, t protowire.Type, f func(p *plane, l *line, b []byte) error) error {
	end, err := w.inner(t, whole)
	for i := 0; err == nil; {
		var num protowire.Number
		if num, t, err = w.field(end); err != nil || num == 0 {
			break
		}
		if num != planeLine || i == len(p.lines) {
			err = w.skip(t, end)
			continue
		}
		l := &p.lines[i]
		i++
		err = p.eachOf(w, t, end, l, f)
	}
	return err
}

func (p *plane) eachOf(w *wire, t protowire.Type, end int64, l *line,
	f func(p *plane, l *line, b []byte) error,
) error {
	stop, err := w.inner(t, end)
	for err == nil {
		var num protowire.Number
		if num, t, err = w.field(stop); err != nil || num == 0 {
			break
		}
		if num != lineEvent {
			err = w.skip(t, stop)
			continue
		}
		var last int64
		if last, err = w.inner(t, stop); err != nil {
			break
		}
		var b []byte
		if b, err = w.take(last, maxText); err == nil {
			err = f(p, l, b)
		}
	}
	return err
}
