// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// class is entities whose profiling fields are watched together: of one model, one kind, and with
// the same fields. One entity that cannot give a field fails the watch of all.
type class struct {
	fields   []uint16
	entities []entity
	devices  []int

	watched bool
	trimmed bool
	watches []*watch
	err     error // why not
	next    time.Time
	wait    time.Duration
}

// Time until a refused class is tried again: the first, doubled each time, and the last.
const (
	profilingRetryMin = 10 * time.Second
	profilingRetryMax = 5 * time.Minute
)

// classify sorts the entities into classes: the same model and the same profiling fields.
func (s *session) classify() {
	s.classes = nil
	type answer struct {
		fields []uint16
		err    error
	}
	asked := map[uint]answer{}
	byKey := map[string]*class{}
	for i := range s.devices {
		gpu, model := s.parts[i].gpu, s.devices[i].Model
		if s.left[gpu] {
			continue
		}
		a, ok := asked[gpu]
		if !ok {
			a.fields, a.err = s.api.profilingFields(gpu)
			asked[gpu] = a
		}
		fields := s.known(listed[gpuquantity.Profiling])
		if a.err == nil {
			fields = intersect(fields, a.fields)
		} else {
			fields = basic(fields) // they should have none; one watch of one device determines it
		}
		fields = without(fields, func(id uint16) bool {
			f := byID[id]
			return slices.Contains(s.set.Without, f.quantity) || f.better != 0 && slices.Contains(s.parts[i].gives, f.better)
		})
		for _, e := range s.parts[i].entities {
			own := atLevel(e.kind, fields)
			key := fmt.Sprint(model, e.kind, own, a.err != nil)
			c := byKey[key]
			if c == nil {
				c = &class{fields: own}
				byKey[key] = c
				s.classes = append(s.classes, c)
			}
			if !slices.Contains(c.entities, e) {
				c.entities = append(c.entities, e)
			}
			c.devices = append(c.devices, i)
		}
	}
	// Compute instances first: their own values precede the GPU instance's.
	slices.SortStableFunc(s.classes, func(a, b *class) int { return cmp.Compare(b.entities[0].kind, a.entities[0].kind) })
}

// watchProfiling watches the classes that are due and not watched, and returns how many were
// refused. A class that cannot be watched has no profiling values; everything else continues.
func (s *session) watchProfiling(kind watchKind) (refused int64) {
	now := s.now()
	for _, c := range s.classes {
		if c.watched || now.Before(c.next) || len(c.fields) == 0 {
			continue
		}
		before := len(s.watches)
		if c.err = s.watchClass(kind, c); c.err == nil {
			c.watched, c.watches = true, slices.Clone(s.watches[before:])
			continue
		}
		refused++
		c.wait = min(max(2*c.wait, profilingRetryMin), profilingRetryMax)
		c.next = now.Add(c.wait)
		s.giveUpUnused()
	}
	return refused
}

// watchClass tries all fields, then the fields that every device with profiling has; one entity
// first, so that a refused class costs the host engine one group and not one for each board.
func (s *session) watchClass(kind watchKind, c *class) error {
	if len(c.entities) > 1 {
		probe := &class{fields: c.fields, entities: c.entities[:1]}
		if err := s.watchClass(kind, probe); err != nil {
			return err
		}
		s.unwatchLast()
		c.fields = probe.fields
	}
	var err error
	for _, fields := range [][]uint16{c.fields, basic(c.fields)} {
		err = nil
		before := len(s.watches)
		for chunk := range slices.Chunk(c.entities, maxEntities) {
			if _, err = s.newWatch(kind, "prof", chunk, fields, s.set.Sampling); err != nil {
				break
			}
		}
		if err == nil {
			c.fields = fields
			return nil
		}
		for len(s.watches) > before {
			s.unwatchLast()
		}
		if len(basic(fields)) == len(fields) {
			break
		}
	}
	return err
}

// trim ends the watch of rates that can be computed from counters if every device of a class has
// the counters: each field costs a round trip for each device and read. Only the rates are
// unwatched and everything else continues: a new watch of the remaining fields beside the old one
// would end with it.
func (s *session) trim() {
	for _, c := range s.classes {
		rates := without(c.fields, func(id uint16) bool { return byID[id].Form != gpuquantity.Rate || byID[id].Rank == 0 })
		if !c.watched || c.trimmed || len(rates) == 0 || slices.ContainsFunc(c.devices, func(i int) bool {
			return slices.ContainsFunc(rates, func(id uint16) bool { return s.state[i].best[byID[id].quantity] != 1 })
		}) {
			continue
		}
		c.trimmed = true
		rest := without(c.fields, func(id uint16) bool { return slices.Contains(rates, id) })
		for _, w := range c.watches {
			s.narrow(w, rest, rates)
		}
	}
}

// narrow ends a watch's fields gone and reads only the rest from now on. If the host engine has no
// room for the field groups, the watch does not change.
func (s *session) narrow(w *watch, rest, gone []uint16) {
	kept, err := s.fieldGroup("prof", rest)
	if err != nil {
		return
	}
	ended, err := s.fieldGroup("ended", gone)
	if err != nil {
		_ = s.api.destroyFieldGroup(kept)
		return
	}
	_ = s.api.unwatch(w.group, ended)
	_ = s.api.destroyFieldGroup(ended)
	_ = s.api.destroyFieldGroup(w.fields)
	s.separate()
	w.fields, w.ids = kept, rest
}

// unwatch ends a watch.
func (s *session) unwatch(w *watch) {
	s.separate()
	s.watches = slices.DeleteFunc(s.watches, func(o *watch) bool { return o == w })
	_ = s.api.unwatch(w.group, w.fields)
	_ = s.api.destroyFieldGroup(w.fields)
}

// unwatchLast takes the newest watch back.
func (s *session) unwatchLast() {
	s.unwatch(s.watches[len(s.watches)-1])
	s.giveUpUnused()
}

// unprofiled reports devices whose profiling fields are watched and have no value. A board divided
// into instances can lack them.
func (s *session) unprofiled() (list []gpudata.Notice) {
	now := s.now()
	for _, normal := range []bool{false, true} {
		n := gpudata.Notice{Kind: gpudata.NoticeProfiling, Normal: normal, Err: errBlankProfiling}
		for i, st := range s.state {
			d := &s.devices[i]
			cut := slices.ContainsFunc(s.devices, func(o devicesamples.Device) bool { return o.Parent == d.ID })
			if st.unprofiled.IsZero() || now.Sub(st.unprofiled) <= s.patience() || cut != normal {
				continue
			}
			if st.health != gpudata.HealthFailed && st.health != gpudata.HealthSilent && !s.left[s.parts[i].gpu] {
				n.Devices = append(n.Devices, d.Name)
			}
		}
		if len(n.Devices) > 0 {
			list = append(list, n)
		}
	}
	return list
}

var errBlankProfiling = errors.New("DCGM accepts the watch, but every value is blank (another profiler may use the " +
	"counters; stop it, or resume with dcgmi profile --resume)")

// notices returns what is missing for longer than one read.
func (s *session) notices() (list []gpudata.Notice) {
	for _, c := range s.classes {
		if c.err == nil {
			continue
		}
		n := gpudata.Notice{Kind: gpudata.NoticeProfiling, Err: c.err, Normal: unsupported(c.err)}
		for _, i := range c.devices {
			n.Devices = append(n.Devices, s.devices[i].Name)
		}
		list = append(list, n)
	}
	list = append(list, s.unprofiled()...)
	if len(s.nameless) > 0 {
		n := gpudata.Notice{Kind: gpudata.NoticeIdentity, Err: fmt.Errorf("DCGM gives no UUID")}
		for _, gpu := range s.nameless {
			n.Devices = append(n.Devices, fmt.Sprint("gpu", gpu))
		}
		list = append(list, n)
	}
	return list
}
