// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"cmp"
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
	return w.fields(whole, func(num protowire.Number, t protowire.Type, end int64) (used bool, err error) {
		switch num {
		case spacePlane:
			return true, x.plane(w, t)
		case spaceError, spaceWarning, spaceHost:
			b, err := w.value(t, end)
			if num == spaceHost {
				x.host = cmp.Or(x.host, string(b))
			} else if len(x.faults) < maxFaults {
				x.faults = append(x.faults, "the profiler says: "+string(b))
			}
			return true, err
		}
		return false, nil
	})
}

// row counts a plane or line.
func (x *space) row(w *wire) error {
	if x.rows++; x.rows > maxRows {
		return w.broken("more than %d planes and lines", maxRows)
	}
	return nil
}

func (x *space) plane(w *wire, t protowire.Type) error {
	if err := x.row(w); err != nil {
		return err
	}
	p := &plane{events: map[int64]*described{}, names: map[int64]string{}}
	x.planes = append(x.planes, p)
	return w.message(t, whole, func(num protowire.Number, t protowire.Type, end int64) (used bool, err error) {
		switch num {
		case planeLine:
			return true, x.line(w, p, t, end)
		case planeName, planeEvents, planeStats, planeStat:
			b, err := w.value(t, end)
			if num == planeName {
				p.name = string(b)
			} else if err == nil {
				err = x.entry(p, num, b)
			}
			return true, err
		}
		return false, nil
	})
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
	if err := x.row(w); err != nil {
		return err
	}
	var l line
	err := w.message(t, end, func(num protowire.Number, t protowire.Type, end int64) (used bool, err error) {
		switch num {
		case lineID, lineTime:
			if t != protowire.VarintType {
				return true, w.broken("the field %d of a line is no number", num)
			}
			v, err := w.varint(end)
			if num == lineID {
				l.id = int64(v)
			} else {
				l.start = int64(v)
			}
			return true, err
		case lineName, lineDisplayName:
			b, err := w.value(t, end)
			if len(b) > 0 && (num == lineDisplayName || l.name == "") {
				l.name = string(b)
			}
			return true, err
		}
		return false, nil
	})
	p.lines = append(p.lines, l)
	return err
}

// events calls f for each event, in the order of the file, with its plane and line.
func (x *space) events(w *wire, f func(p *plane, l *line, b []byte) error) error {
	planes := x.planes
	return w.fields(whole, func(num protowire.Number, t protowire.Type, _ int64) (used bool, err error) {
		if num != spacePlane || len(planes) == 0 {
			return false, nil
		}
		p := planes[0]
		planes = planes[1:]
		return true, p.each(w, t, f)
	})
}

func (p *plane) each(w *wire, t protowire.Type, f func(p *plane, l *line, b []byte) error) error {
	i := 0
	return w.message(t, whole, func(num protowire.Number, t protowire.Type, end int64) (used bool, err error) {
		if num != planeLine || i == len(p.lines) {
			return false, nil
		}
		l := &p.lines[i]
		i++
		return true, w.message(t, end, func(num protowire.Number, t protowire.Type, end int64) (used bool, err error) {
			if num != lineEvent {
				return false, nil
			}
			b, err := w.value(t, end)
			if err == nil {
				err = f(p, l, b)
			}
			return true, err
		})
	})
}
