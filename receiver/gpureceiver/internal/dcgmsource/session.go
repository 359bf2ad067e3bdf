// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/countersum"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// session is everything that exists in the host engine for one set of devices over one connection.
type session struct {
	api  api
	set  Settings
	seen *seenXIDs

	devices   []gpusamplesextension.Device
	parts     []part           // by device
	byPart    map[entity][]int // entity to the devices that it feeds
	watches   []*watch
	groups    []uintptr
	fields    []uintptr
	state     []deviceState
	ranks     []uint8 // of the values of the present read
	health    []gpudata.Health
	inventory string
	checked   time.Time // when the list of devices was last read
	dead      bool      // the connection does not answer any more
	fails     int       // reads that failed in a row while the connection answered
}

// part is the entities that a device consists of: a GPU of itself, a MIG device of its compute instance and the GPU
// instance that holds it.
type part struct {
	gpu      uint
	entities []entity
}

// watch is one field group on one group, read on its own.
type watch struct {
	group, fields uintptr
	entities      []entity
	mark          int64 // of valuesSince
	events        bool  // the fields are events
	every         time.Duration
	read          time.Time
}

// deviceState is what converting needs to know of one device.
type deviceState struct {
	best          [gpudata.NumQuantities]uint8 // lowest rank seen, plus 1; 0 when none
	sums          [gpudata.NumQuantities]countersum.Sum
	xids          float64
	remapFailed   bool
	remapPending  bool
	retirePending bool
}

// maxFails: a read that fails this often in a row while the connection answers means that handles are no longer ours.
const maxFails = 3

// groupChunks bounds the groups of one session: 64 exist per host engine, over all clients.
const groupChunks = 8

func newSession(a api, set Settings, seen *seenXIDs) (*session, error) {
	s := &session{api: a, set: set, seen: seen, checked: time.Now()}
	if err := s.discover(); err != nil {
		return nil, err
	}
	if err := s.watchAll(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// unique makes a name: field-group names are unique per host engine over all clients, also dead ones not yet noticed.
func unique(kind string) string {
	var r [4]byte
	_, _ = rand.Read(r[:])
	host, _ := os.Hostname()
	if len(host) > 32 {
		host = host[:32]
	}
	return fmt.Sprintf("otelgpu-%s-%d-%s-%s", host, os.Getpid(), hex.EncodeToString(r[:]), kind)
}

// watchAll creates groups and watches for what was discovered.
func (s *session) watchAll() error {
	if len(s.devices) == 0 {
		return nil
	}
	boards := s.boards()
	keep := s.set.KeepAge.Seconds()
	fastFields, err := s.fieldGroup("fast", s.known(ids(fast)))
	if err != nil {
		return err
	}
	slowFields, err := s.fieldGroup("slow", s.known(ids(slow)))
	if err != nil {
		return err
	}
	xidFields, err := s.fieldGroup("xid", []uint16{fieldXID})
	if err != nil {
		return err
	}
	for _, chunk := range chunks(boards) {
		group, err := s.group(chunk)
		if err != nil {
			return err
		}
		for _, w := range []*watch{
			{group: group, fields: fastFields, entities: chunk, every: s.set.Sampling},
			{group: group, fields: slowFields, entities: chunk, every: s.set.Slow},
		} {
			if err := s.watch(w, keep); err != nil {
				return err
			}
		}
	}
	all, err := s.group(boards) // events are few
	if err != nil {
		return err
	}
	if err := s.watch(&watch{group: all, fields: xidFields, entities: boards, every: s.set.Sampling, events: true}, keep); err != nil {
		return err
	}
	if instances := s.instanceEntities(); len(instances) > 0 {
		s.watchInstances(instances, keep)
	}
	if s.set.Profiling {
		s.watchProfiling(keep)
	}
	return nil
}

// watchInstances watches the memory of MIG instances; one that does not give it loses only that.
func (s *session) watchInstances(instances []entity, keep float64) {
	fields, err := s.fieldGroup("mig", s.known([]uint16{250, 252}))
	if err != nil {
		return
	}
	for _, chunk := range chunks(instances) {
		group, err := s.group(chunk)
		if err != nil {
			return
		}
		_ = s.watch(&watch{group: group, fields: fields, entities: chunk, every: s.set.Sampling}, keep)
	}
}

// class is entities whose profiling fields are watched together: of one model, one kind, and with the same fields. One
// entity that cannot give a field fails the watch of all.
type class struct {
	fields   []uint16
	entities []entity
}

// watchProfiling watches the profiling fields by class. A class that cannot be watched has no profiling values;
// everything else goes on.
func (s *session) watchProfiling(keep float64) {
	classes := map[string]*class{}
	for i := range s.devices {
		gpu := s.parts[i].gpu
		fields, probe := s.known(ids(profiling)), ""
		supported, err := s.api.profilingFields(gpu)
		if err == nil {
			fields = intersect(fields, supported)
		} else {
			// It should have none; trying costs one refused call, and it must not take others with it.
			fields, probe = basic(fields), fmt.Sprint("gpu", gpu)
		}
		for _, e := range s.parts[i].entities {
			own := atLevel(e.kind, fields)
			key := fmt.Sprint(s.devices[i].Model, e.kind, own, probe)
			c := classes[key]
			if c == nil {
				c = &class{fields: own}
				classes[key] = c
			}
			c.entities = append(c.entities, e)
		}
	}
	// Compute instances first: what they give themselves comes before what their GPU instance gives.
	order := slices.SortedFunc(maps.Values(classes), func(a, b *class) int {
		return cmp.Or(cmp.Compare(b.entities[0].kind, a.entities[0].kind), cmp.Compare(a.entities[0].id, b.entities[0].id))
	})
	for _, c := range order {
		for _, chunk := range chunks(unite(c.entities)) {
			s.watchClass(c.fields, chunk, keep)
		}
	}
}

// watchClass watches all fields or, where some are refused, those that every device with profiling has.
func (s *session) watchClass(fields []uint16, chunk []entity, keep float64) {
	group, err := s.group(chunk)
	if err != nil {
		return
	}
	for _, list := range [][]uint16{fields, basic(fields)} {
		if len(list) == 0 {
			return
		}
		handle, err := s.fieldGroup("prof", list)
		if err == nil && s.watch(&watch{group: group, fields: handle, entities: chunk, every: s.set.Sampling}, keep) == nil {
			return
		}
		if len(basic(fields)) == len(fields) {
			return
		}
	}
}

// known leaves out the fields that the client library does not know.
func (s *session) known(fields []uint16) []uint16 {
	var out []uint16
	for _, id := range fields {
		if s.api.fieldType(id) != 0 {
			out = append(out, id)
		}
	}
	return out
}

// fieldGroup creates a field group. An older host engine refuses the whole group for one field that it does not know;
// then the fields of DCGM 4.6 are left out.
func (s *session) fieldGroup(kind string, fields []uint16) (uintptr, error) {
	handle, err := s.api.createFieldGroup(unique(kind), fields)
	if err != nil {
		if older := without(fields, newInDCGM46); len(older) > 0 && len(older) < len(fields) {
			handle, err = s.api.createFieldGroup(unique(kind), older)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("cannot create field group %s: %w", kind, err)
	}
	s.fields = append(s.fields, handle)
	return handle, nil
}

func (s *session) group(entities []entity) (uintptr, error) {
	group, err := s.api.createGroup(unique("group"), entities)
	if err != nil {
		return 0, fmt.Errorf("cannot create group: %w", err)
	}
	s.groups = append(s.groups, group)
	return group, nil
}

func (s *session) watch(w *watch, keep float64) error {
	if err := s.api.watch(w.group, w.fields, w.every.Microseconds(), keep); err != nil {
		_ = s.api.unwatch(w.group, w.fields) // some entities may be half watched
		return fmt.Errorf("cannot watch fields: %w", err)
	}
	s.watches = append(s.watches, w)
	return nil
}

// close removes what the session has in the host engine.
func (s *session) close() {
	for _, w := range s.watches {
		_ = s.api.unwatch(w.group, w.fields)
	}
	for _, g := range s.groups {
		_ = s.api.destroyGroup(g)
	}
	for _, f := range s.fields {
		_ = s.api.destroyFieldGroup(f)
	}
	s.watches, s.groups, s.fields = nil, nil, nil
}

// read reads every watch that is due, and from time to time the list of devices.
func (s *session) read(b *gpudata.Batch) error {
	if time.Since(s.checked) >= s.set.Slow || len(s.devices) == 0 {
		changed, err := s.check()
		if err != nil {
			s.dead = true
			return err
		}
		b.Changed = changed
	}
	var errs []error
	for _, w := range s.watches {
		if w.every > s.set.Sampling && time.Since(w.read) < w.every {
			continue
		}
		w.read = time.Now()
		err := s.readWatch(b, w)
		if err == nil {
			continue
		}
		// Most errors say only a number: a cheap call tells whether the connection is dead or the request was refused.
		// Nothing else is tried on a dead one, for each call can take a minute.
		if _, gone := s.api.gpus(); gone != nil {
			s.dead = true
			return fmt.Errorf("%w (after: %w)", gone, err)
		}
		errs = append(errs, err)
	}
	b.Health = append(b.Health, s.health...)
	if len(errs) == 0 {
		s.fails = 0
		return nil
	}
	if s.fails++; s.fails >= maxFails {
		return errors.Join(errs...)
	}
	return nil
}

// check reads the list of devices and their health. When the list has changed (a driver detached or attached, MIG taken
// apart) everything is made anew.
func (s *session) check() (changed bool, err error) {
	s.checked = time.Now()
	inventory, err := s.list()
	if err != nil {
		return false, err
	}
	if inventory.key != s.inventory {
		s.close()
		if err := s.discover(); err != nil {
			return false, err
		}
		return true, s.watchAll()
	}
	s.checkHealth()
	return false, nil
}

// DCGM's states of a GPU that mean that it does not work.
const (
	statusLost     = 4
	statusDetached = 7
)

func (s *session) checkHealth() {
	for i := range s.devices {
		st := &s.state[i]
		switch status := s.api.status(s.parts[i].gpu); {
		case status == statusLost || status == statusDetached:
			s.health[i] = gpudata.HealthFailed
		case st.remapFailed:
			s.health[i] = gpudata.HealthDegraded
		case st.retirePending || st.remapPending:
			s.health[i] = gpudata.HealthPredictedFailure
		default:
			s.health[i] = gpudata.HealthOK
		}
	}
}
