// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// check reads the list of devices, and whether lost boards are back. When the list has changed (a driver detached or
// attached, MIG taken apart) everything is made anew.
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
			// Between the old list and the new one: nothing is known, and the next read tries again.
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

// silence is for how long a board may give blanks only before it counts as failed: a driver that is busy recovers.
const silence = 5 * time.Second

// judge says how the boards are, from what the read brought. The host engine is asked only about a board that gave
// nothing but blanks. One that is lost is not watched any more: the host engine would store thousands of blanks a
// second.
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
			st.health = st.condition()
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
			s.inventory = "" // everything is made anew at the next check
		}
	}
}

// patience is how long a board may be without a value.
func (s *session) patience() time.Duration { return max(silence, 3*s.set.Sampling) }

// condition is what a board that answers says of itself.
func (st *deviceState) condition() gpudata.Health {
	switch {
	case st.remapFailed:
		return gpudata.HealthDegraded
	case st.retirePending || st.remapPending:
		return gpudata.HealthPredictedFailure
	}
	return gpudata.HealthOK
}
