// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/countertracker"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// session is everything that exists in the host engine for one set of devices over one connection.
type session struct {
	api  api
	set  Settings
	kept *kept
	now  func() time.Time

	devices   []devicesamples.Device
	parts     []part           // by device
	byPart    map[entity][]int // entity to the devices that it feeds
	state     []*deviceState   // by device
	watches   []*watch
	joints    []*joint // of the watches, if joined
	joined    bool
	groups    map[string]uintptr // by the entities
	classes   []*class
	without   []uint16      // fast fields that are not watched, because every device has the better one
	left      map[uint]bool // boards that are lost and not watched
	nameless  []uint        // devices without a UUID
	started   int64         // the host engine's clock at discovery, µs
	inventory string
	checked   time.Time // when the list of devices was last read
	dead      bool      // the connection no longer responds
	fails     int       // reads that failed in a row while the connection answered

	// Of the present read.
	ranks []uint8 // of the values
	run   run
}

// part is the entities that a device consists of: a GPU of itself, a MIG device of its compute
// instance and the GPU instance that holds it.
type part struct {
	gpu      uint
	entities []entity
	gives    []uint16 // of a board: the fields that it has, of the fields that others can replace
}

// kept is what outlives sessions: after a restart of the host engine or a new connection, counters
// continue, no sample and no XID is counted twice, and reading continues where it stopped.
type kept struct {
	devices map[string]*deviceState // by hw.id
	xids    seenXIDs
	mark    int64 // up to there (µs, the host engine's clock) histories have been read; 0: never
}

// maxKept bounds the removed devices that are remembered.
const maxKept = 256

// deviceState is the state kept of one device.
type deviceState struct {
	best      [gpuquantity.Num]uint8                 // lowest rank seen, plus 1; 0 if there is none
	sums      [2][gpuquantity.Num]countertracker.Sum // of rates and of counters
	last      [2][maxFields]int64                    // time of the newest sample, by kind of part and field; µs
	xids      float64
	condition gpudata.Condition

	// Of the board's own fields: whether the present read brought values or blanks, and since when
	// there are values or only blanks.
	measured, blank bool
	answered        time.Time
	health          gpudata.Health

	unprofiled time.Time // since when profiling fields that are watched have blanks only; zero: they have values
}

// maxFails: a read that fails this often in a row while the connection works means that the handles
// are invalid.
const maxFails = 3

func newSession(a api, set Settings, k *kept, now func() time.Time) (*session, error) {
	s := &session{api: a, set: set, kept: k, now: now, checked: now(), groups: map[string]uintptr{}, left: map[uint]bool{}}
	err := s.discover()
	if err == nil {
		err = s.watchAll()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// unique returns a unique name: field-group names are unique per host engine over all clients,
// including dead ones not yet noticed.
func unique(kind string) string {
	var r [4]byte
	_, _ = rand.Read(r[:])
	host, _ := os.Hostname()
	if len(host) > 32 {
		host = host[:32]
	}
	return fmt.Sprintf("otelgpu-%s-%d-%s-%s", host, os.Getpid(), hex.EncodeToString(r[:]), kind)
}

// adopt finds or creates the state of each device.
func (s *session) adopt() {
	for _, st := range s.kept.devices {
		for _, last := range st.last {
			if newest := slices.Max(last[:]); newest > s.started+time.Minute.Microseconds() {
				*st = deviceState{xids: st.xids} // another host engine, whose clock is behind
				break
			}
		}
	}
	present := map[string]*deviceState{}
	s.state = make([]*deviceState, len(s.devices))
	for i := range s.devices {
		id := s.devices[i].ID
		st := s.kept.devices[id]
		if st == nil {
			st = &deviceState{}
		}
		st.best, st.unprofiled = [gpuquantity.Num]uint8{}, time.Time{}
		s.state[i], present[id] = st, st
	}
	for id, st := range s.kept.devices {
		if _, ok := present[id]; !ok && len(present) < maxKept {
			present[id] = st
		}
	}
	s.kept.devices = present
}

// resume returns where histories of a new session begin: where the previous session stopped, or
// now. Older data of the host engine is not requested, because it can be gigabytes.
func (s *session) resume() int64 {
	if m := s.kept.mark; m > 0 && m <= s.started && s.started-m <= s.set.KeepAge.Microseconds() {
		return m
	}
	return s.started
}

// newWatch creates a watch of fields on entities at an interval.
func (s *session) newWatch(kind watchKind, name string, entities []entity, fields []uint16,
	every time.Duration,
) (*watch, error) {
	fields = s.known(fields)
	if len(fields) == 0 || len(entities) == 0 {
		return nil, nil
	}
	group, err := s.group(entities)
	if err != nil {
		return nil, err
	}
	handle, err := s.fieldGroup(name, fields)
	if err != nil {
		return nil, err
	}
	w := &watch{
		kind: kind, group: group, fields: handle, ids: fields, entities: entities, every: every, mark: s.resume(),
	}
	if err := s.api.watch(group, handle, every.Microseconds(), s.set.KeepAge.Seconds()); err != nil {
		_ = s.api.unwatch(group, handle) // some entities may be half watched
		_ = s.api.destroyFieldGroup(handle)
		return nil, fmt.Errorf("cannot watch fields: %w", err)
	}
	s.separate()
	s.watches = append(s.watches, w)
	return w, nil
}

// watchPlan is a watch to create for every board.
type watchPlan struct {
	kind   watchKind
	name   string
	fields []uint16
	every  time.Duration
}

// merge joins plans whose newest values are read at the same interval: a read costs one round trip,
// regardless of the fields.
func merge(plan []watchPlan) (merged []watchPlan) {
	for _, x := range plan {
		i := slices.IndexFunc(merged, func(m watchPlan) bool {
			return x.kind == latest && m.kind == latest && m.every == x.every
		})
		if i < 0 {
			merged = append(merged, x)
		} else {
			merged[i].fields = slices.Concat(merged[i].fields, x.fields)
		}
	}
	return merged
}

// watchAll creates groups and watches for the discovered devices.
func (s *session) watchAll() error {
	slowEvery := max(s.set.Sampling, s.set.Slow/2)
	mediumEvery := min(slowEvery, max(s.set.Sampling, time.Second))
	plan := []watchPlan{
		{
			s.sampledAs(), "fast",
			without(listed[gpuquantity.Fast], func(id uint16) bool { return slices.Contains(s.without, id) }),
			s.set.Sampling,
		},
		{latest, "medium", listed[gpuquantity.Medium], mediumEvery},
		{latest, "slow", listed[gpuquantity.Slow], slowEvery},
		{events, "xid", []uint16{fieldXID}, mediumEvery},
		{processes, "processes", s.processField(), max(slowEvery, processesEvery)},
	}
	for chunk := range slices.Chunk(s.watched(entityGPU), maxEntities) {
		for _, x := range merge(plan) {
			if _, err := s.newWatch(x.kind, x.name, chunk, x.fields, x.every); err != nil {
				return err
			}
		}
	}
	measured := atLevel(entityGPUInstance, slices.Concat(listed[gpuquantity.Fast], listed[gpuquantity.Slow]))
	for chunk := range slices.Chunk(s.watched(entityGPUInstance), maxEntities) {
		// One that does not give its memory loses only that.
		_, _ = s.newWatch(latest, "mig", chunk, measured, mediumEvery)
	}
	if s.set.Profiling {
		s.classify()
		s.watchProfiling(s.sampledAs())
	}
	return nil
}

// processField returns the field of the processes, where it is wanted and the library knows it as a
// process.
func (s *session) processField() []uint16 {
	if s.set.Processes && s.api.fieldType(fieldProcesses) == typeBinary {
		return []uint16{fieldProcesses}
	}
	return nil
}

// known leaves out the fields that the client library does not know.
func (s *session) known(fields []uint16) []uint16 {
	return without(fields, func(id uint16) bool { return s.api.fieldType(id) == 0 })
}

// fieldGroup creates a field group. An older host engine refuses the whole group for one field that
// it does not know; then the fields of DCGM 4.6 are omitted.
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
	return handle, nil
}

// group returns the group of the entities; watches of the same ones share it, because a host engine
// has 62 for all its clients.
func (s *session) group(entities []entity) (uintptr, error) {
	key := fmt.Sprint(entities)
	if group, ok := s.groups[key]; ok {
		return group, nil
	}
	group, err := s.api.createGroup(unique("group"), entities)
	if err != nil {
		return 0, fmt.Errorf("cannot create group: %w", err)
	}
	s.groups[key] = group
	return group, nil
}

// giveUpUnused destroys groups that no watch uses.
func (s *session) giveUpUnused() {
	used := map[uintptr]bool{}
	for _, w := range s.watches {
		used[w.group] = true
	}
	maps.DeleteFunc(s.groups, func(_ string, group uintptr) bool {
		if !used[group] {
			_ = s.api.destroyGroup(group)
		}
		return !used[group]
	})
}

// close removes the session's objects from the host engine, and records where its histories
// stopped.
func (s *session) close() {
	s.remember()
	s.separate()
	for _, w := range s.watches {
		_ = s.api.unwatch(w.group, w.fields)
		_ = s.api.destroyFieldGroup(w.fields)
	}
	for _, g := range s.groups {
		_ = s.api.destroyGroup(g)
	}
	s.watches, s.classes, s.groups = nil, nil, map[string]uintptr{}
}

// remember keeps the mark of the histories for the next session.
func (s *session) remember() {
	mark := int64(0)
	for _, w := range s.watches {
		if w.kind == histories && (mark == 0 || w.mark < mark) {
			mark = w.mark
		}
	}
	if mark > 0 {
		s.kept.mark = mark
	}
}

// rebuild creates all watches again, for other devices than before.
func (s *session) rebuild() error {
	s.close()
	return s.watchAll()
}

// check reads the list of devices, and whether lost ones are back. If the list has changed (a
// driver detached or attached, MIG reconfigured) everything is created again.
func (s *session) check() (changed bool, err error) {
	s.checked = s.now()
	inventory, err := s.list()
	if err != nil {
		return false, err
	}
	if inventory.key != s.inventory {
		s.close()
		s.left = map[uint]bool{}
		if err := s.discover(); err != nil {
			// Between the old list and the new one: nothing is known, and the next read tries
			// again.
			s.devices, s.parts, s.state, s.inventory = nil, nil, nil, ""
			return true, err
		}
		return true, s.watchAll()
	}
	back := false
	for gpu := range s.left {
		if status := s.api.status(gpu); status != statusLost && status != statusDetached {
			delete(s.left, gpu)
			back = true
		}
	}
	if back {
		return false, s.rebuild()
	}
	return false, nil
}

// DCGM's states of a GPU that mean that it does not work.
const (
	statusLost     = 4
	statusDetached = 7
)

// silence is how long a device may return only blanks before it counts as failed: a busy driver
// recovers.
const silence = 5 * time.Second

// judge derives the state of the devices from the data of a read. The host engine is queried only
// about a device that returned only blanks. A lost one is no longer watched: the host engine would
// store thousands of blanks a second.
func (s *session) judge(b *gpudata.Batch) {
	now := s.now()
	lost := false
	for i, st := range s.state {
		gpu := s.parts[i].gpu
		if s.devices[i].Parent != "" {
			continue // as its board
		}
		switch {
		case s.left[gpu]:
			st.health = gpudata.HealthFailed
		case st.measured:
			st.answered = now
			st.health = st.condition.Health()
		case st.blank:
			if status := s.api.status(gpu); status == statusLost || status == statusDetached {
				st.health = gpudata.HealthFailed
				if status == statusLost {
					s.left[gpu], lost = true, true
				}
			} else if st.answered.IsZero() {
				st.answered = now // it never gave a value: from now on it has time to
			} else if now.Sub(st.answered) > s.patience() {
				st.health = gpudata.HealthSilent
			}
		case now.Sub(st.answered) > s.patience() && st.health != gpudata.HealthFailed && st.health != gpudata.HealthSilent:
			st.health = gpudata.HealthUnknown // neither values nor blanks: the driver hangs
		}
	}
	for i := range s.devices {
		st := s.state[i]
		if s.devices[i].Parent != "" {
			st.health = gpudata.HealthUnknown
			if k := slices.IndexFunc(s.parts, func(p part) bool { return p.gpu == s.parts[i].gpu }); k >= 0 {
				st.health = s.state[k].health
			}
		}
		b.Health = append(b.Health, st.health)
	}
	if lost {
		if err := s.rebuild(); err != nil {
			s.inventory = "" // everything is created again at the next check
		}
	}
}

// patience returns how long a board may be without a value.
func (s *session) patience() time.Duration { return max(silence, 3*s.set.Sampling) }
