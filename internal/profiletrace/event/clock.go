// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"slices"
)

// ClockReading is a reading of a device's clock.
type ClockReading struct {
	Time  int64   // ns since the file's base
	Clock float64 // any unit, the same for all
}

// Clock adds a reading of a device's clock, in any unit that is the same for all, at ns since the
// file's base.
func (s *Store) Clock(device, at int64, value float64) {
	const devices = 256
	if at < -MaxTime || at > MaxTime || !(value > 0) || len(s.clocks) == devices && s.clocks[device] == nil {
		return
	}
	s.clocks[device] = append(limitClocks(s.clocks[device]), ClockReading{Time: at, Clock: value})
}

// Clocks returns the readings of a device's clock.
func (s *Store) Clocks(device int64) []ClockReading { return s.clocks[device] }

// limitClocks halves a list of readings that has become too long, in order of time.
func limitClocks(list []ClockReading) []ClockReading {
	const most = 1 << 16
	if len(list) < most {
		return list
	}
	slices.SortFunc(list, func(a, b ClockReading) int { return cmp.Compare(a.Time, b.Time) })
	return EverySecond(list)
}

// EverySecond keeps the first, the third and so on of a list, in the same array.
func EverySecond[T any](list []T) []T {
	half := list[:0]
	for i := 0; i < len(list); i += 2 {
		half = append(half, list[i])
	}
	return half
}
