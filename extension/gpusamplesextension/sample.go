// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

// Sample is what was read from one device at one moment: values of the fields that were read and are known.
// Fields with different times of their own go into different samples.
type Sample struct {
	Time   int64              // unix ns, the time of the measurement, not of the reading
	Known  uint32             // bit f set: Values[f] is known
	Values [NumFields]float64 // in base units, see Field
}

// Set stores a value. NaN, infinities and what no device can have (less than nothing, above 1 MW) mean unknown and
// are not stored.
func (s *Sample) Set(f Field, v float64) {
	if int(f) >= NumFields || !f.possible(v) {
		return
	}
	s.Values[f] = v
	s.Known |= 1 << f
}

// Get is the value of a field, and whether it is known.
func (s *Sample) Get(f Field) (float64, bool) {
	if int(f) >= NumFields || s.Known&(1<<f) == 0 {
		return 0, false
	}
	return s.Values[f], true
}

// EventKind says what happened.
type EventKind uint8

// Kinds of event.
const (
	EventXID            EventKind = iota // Code is the XID number
	EventECCCorrected                    // Count new single-bit errors
	EventECCUncorrected                  // Count new double-bit errors
	EventThrottleStart                   // Code is the ThrottleReason that began
	EventThrottleEnd                     // Code is the ThrottleReason that ended
)

// Event is something that happened to a device at a moment.
type Event struct {
	Time  int64     // unix ns
	Kind  EventKind // says which of the next two is used
	Code  int64     // XID number or ThrottleReason
	Count int64     // new errors
}
