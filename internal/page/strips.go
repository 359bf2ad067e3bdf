// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"math"
	"slices"
)

func (m *Model) devicesOf(s *State, now, span int64) {
	most := min(40, shownRecent/max(1, len(m.devices)))
	for _, d := range m.devices {
		out := d.strip(now, span)
		out.Name = m.title(d)
		skip := len(d.recent.list) - most
		d.recent.each(func(r *recent) {
			if skip--; skip < 0 {
				out.Recent = append(out.Recent, Recent{millis(r.start), millis(r.end), r.name, r.trace.String()})
			}
		})
		s.Devices = append(s.Devices, out)
	}
	slices.SortFunc(s.Devices, func(a, b Device) int {
		x, y := m.devices[a.ID], m.devices[b.ID] // gpu10 after gpu9
		return cmp.Or(cmp.Compare(x.host, y.host), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID))
	})
}

// strip returns the device's last seconds, in at most shownCells cells, each the mean of its
// seconds.
func (d *device) strip(newest, span int64) Device {
	step := (span + shownCells - 1) / shownCells
	first := (newest/step - span/step + 1) * step // so that cells keep their seconds as time passes
	out := Device{
		ID: d.id, Model: d.model, Start: first, Step: step, Limit: d.memory / (1 << 20),
		Recent: []Recent{},
	}
	for at := first; at <= newest; at += step {
		var covered mean
		for i := at; i < min(at+step, newest+1); i++ {
			covered.add(d.covered[i%keptSeconds].share(i), d.first > 0 && i >= d.first)
		}
		out.Covered = append(out.Covered, covered.value(1000))
	}
	out.Busy, out.Power = d.cells(busy, first, newest, step, 1000), d.cells(power, first, newest, step, 10)
	out.Temperature, out.Memory = d.cells(temperature, first, newest, step, 10), d.cells(memory, first, newest, step, 1)
	for _, v := range out.Memory {
		if v != nil {
			*v = math.Round(*v / (1 << 20))
		}
	}
	out.Throttled, out.Metered = d.cells(throttled, first, newest, step, 1000), d.metered >= first
	return out
}

// cells returns the means of a measure, rounded to 1/parts. A sample covers the time since the
// previous one.
func (d *device) cells(measure int, first, newest, step int64, parts float64) (list []*float64) {
	read := func(i int64) bool { return d.samples[i%keptSeconds].at == i }
	known := func(i int64) bool { return read(i) && d.samples[i%keptSeconds].known[measure] }
	before := first - 1
	for before > first-maxBetween && !read(before) {
		before--
	}
	next := first
	for at := first; at <= newest; at += step {
		var m mean
		for i := at; i < min(at+step, newest+1); i++ {
			for next = max(next, i); next <= newest && !known(next); {
				next++
			}
			held := next <= newest && (next == i || read(before) && next-before <= maxBetween)
			m.add(d.samples[next%keptSeconds].value[measure], held)
			if read(i) {
				before = i
			}
		}
		list = append(list, m.value(parts))
	}
	return list
}
