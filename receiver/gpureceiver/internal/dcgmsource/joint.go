// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"slices"
	"time"
)

// joint is watches of the same entities and interval, whose newest values are read in one round
// trip.
type joint struct {
	watches []*watch
	fields  uintptr // a field group of all their fields
	byField map[uint16]*watch
}

// jointly returns the joints of the present watches. A watch that is alone, or for which the host
// engine has no room for one more field group, is in none.
func (s *session) jointly() []*joint {
	if s.joined {
		return s.joints
	}
	s.joined = true
	type key struct {
		group uintptr
		every time.Duration
	}
	byKey := map[key][]*watch{}
	var order []key
	for _, w := range s.watches {
		if w.kind == latest || w.kind == events {
			k := key{w.group, w.every}
			if byKey[k] == nil {
				order = append(order, k)
			}
			byKey[k] = append(byKey[k], w)
		}
	}
	for _, k := range order {
		j := &joint{watches: byKey[k], byField: map[uint16]*watch{}}
		if len(j.watches) == 1 {
			continue
		}
		var ids []uint16
		for _, w := range j.watches {
			ids = append(ids, w.ids...)
			for _, id := range w.ids {
				j.byField[id] = w
			}
		}
		var err error
		if j.fields, err = s.fieldGroup("joint", ids); err == nil {
			s.joints = append(s.joints, j)
		}
	}
	return s.joints
}

// separate destroys the joints, because the watches change.
func (s *session) separate() {
	for _, j := range s.joints {
		_ = s.api.destroyFieldGroup(j.fields)
	}
	s.joints, s.joined = nil, false
}

// fetchTogether fetches the newest values of each joint of which a watch is due. It returns an
// error that ends the session. After any other, each watch is read alone and reports its own.
func (s *session) fetchTogether(now time.Time, pace time.Duration) error {
	for _, j := range s.jointly() {
		for _, w := range j.watches {
			w.fetched = false
		}
		if !slices.ContainsFunc(j.watches, func(w *watch) bool { return w.due(now, pace) }) {
			continue
		}
		err := again(func() error {
			for _, w := range j.watches {
				w.raw = w.raw[:0]
			}
			return s.api.latest(j.watches[0].group, j.fields, func(v *rawValue) {
				if w := j.byField[v.field]; w != nil {
					w.raw = append(w.raw, *v)
				}
			})
		})
		if disconnected(err) || timedOut(err) {
			return err
		}
		for _, w := range j.watches {
			w.fetched = err == nil
		}
	}
	return nil
}

// fetch fetches the newest values of a watch, unless fetchTogether did, and returns the time of the
// newest.
func (s *session) fetch(w *watch) (newest int64, err error) {
	if !w.fetched {
		err = again(func() error {
			w.raw = w.raw[:0]
			return s.api.latest(w.group, w.fields, func(v *rawValue) { w.raw = append(w.raw, *v) })
		})
	}
	w.fetched = false
	for i := range w.raw {
		newest = max(newest, w.raw[i].ts)
	}
	return newest, err
}
