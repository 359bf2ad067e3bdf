// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/instrument"
)

// View reads the rings under one read lock. Lookups do not allocate. A View must be used by one
// goroutine and not after Release; until then writers wait, so do no slow work between Acquire and
// Release.
type View struct{ st *Store }

// Release releases the read lock.
func (v View) Release() { v.st.mu.RUnlock() }

// Lookup finds a device or MIG instance by hw.id, with or without prefix, in any case.
func (v View) Lookup(id string) (DeviceView, bool) {
	d := v.st.devices[NormalizeID(id)]
	if d == nil {
		v.st.Stats.MissUnknown.Add(1)
	}
	return DeviceView{v.st, d}, d != nil
}

// LookupPCI finds a physical GPU by the host.id or host.name of its machine and its PCI address.
func (v View) LookupPCI(host, bdf string) (DeviceView, bool) {
	d := v.st.byPCI[hostPCI{host, NormalizePCI(bdf)}]
	if d == nil || host == "" {
		v.st.Stats.MissUnknown.Add(1)
		return DeviceView{}, false
	}
	return DeviceView{v.st, d}, true
}

// Empty reports whether no device is known.
func (v View) Empty() bool { return len(v.st.devices) == 0 }

// Devices appends a view of every device to dst, in no order.
func (v View) Devices(dst []DeviceView) []DeviceView {
	for _, d := range v.st.devices {
		dst = append(dst, DeviceView{v.st, d})
	}
	return dst
}

// DeviceView is one device under the lock of a View. Times are Unix nanoseconds, intervals are
// closed.
type DeviceView struct {
	st *Store
	d  *device
}

// Device returns the writer's description, with PCIBDF normalized. Do not modify it.
func (x DeviceView) Device() *Device { return &x.d.desc }

// Board returns the physical GPU: the device itself, or the parent of a MIG instance. False if the
// parent has no samples.
func (x DeviceView) Board() (DeviceView, bool) {
	if x.d.desc.Parent == "" {
		return x, true
	}
	d := x.st.devices[NormalizeID(x.d.desc.Parent)]
	return DeviceView{x.st, d}, d != nil
}

// Newest returns the time up to which the samples of all live fields have arrived: the oldest of
// their newest samples, where a field without a sample for 3 intervals is no longer live. It never
// decreases unless the clock is set back. 0 before the first sample.
func (x DeviceView) Newest() int64 { return x.d.settled }

// Arrived returns the time of the newest sample of any field, and when it was written. The store's
// clock measures the latter, the source's the former. 0 before the first sample.
func (x DeviceView) Arrived() (newest, at int64) { return x.d.newest, x.d.arrived }

// Interval returns the time between two samples: the requested or the measured one, whichever is
// longer. 0 if unknown.
func (x DeviceView) Interval() time.Duration {
	if x.d.primary == nil {
		return x.d.desc.Interval
	}
	return time.Duration(x.d.primary.interval)
}

// Has reports whether the field has any sample in the ring.
func (x DeviceView) Has(f Field) bool { return x.field(f) != nil }

func (x DeviceView) field(f Field) *series {
	if int(f) >= NumFields {
		return nil
	}
	if s := x.d.series[f]; s != nil && s.len() > 0 {
		return s
	}
	return nil
}

// Mean returns the time-weighted mean over the covered part of [start, end] and that part's share
// of the interval: time between samples at most 3 intervals apart. Instants are interpolated
// linearly between two samples, a ratio applies to the time since the previous sample, a mask's
// mean is the share of time with any bit set, a counter's mean is its rate per second. If coverage
// is 0, as for an interval of length 0, the mean is unknown.
func (x DeviceView) Mean(f Field, start, end int64) (mean, coverage float64) {
	s := x.field(f)
	if s == nil {
		return 0, 0
	}
	return s.mean(start, end)
}

func (s *series) mean(start, end int64) (mean, coverage float64) {
	if end <= start {
		return 0, 0
	}
	integral, covered := s.between(start, end)
	if covered == 0 {
		return 0, 0
	}
	return integral / (float64(covered) * 1e-9), float64(covered) / float64(end-start)
}

// Integral returns the integral in value × seconds (for a counter the increase, in its unit) over
// the covered part of [start, end], and that part's share of the interval.
func (x DeviceView) Integral(f Field, start, end int64) (integral, coverage float64) {
	s := x.field(f)
	if s == nil || end <= start {
		return 0, 0
	}
	integral, covered := s.between(start, end)
	return integral, float64(covered) / float64(end-start)
}

// Max returns the largest value in the covered part of [start, end], in the unit of the field;
// false if nothing is covered.
func (x DeviceView) Max(f Field, start, end int64) (largest float64, ok bool) {
	s := x.field(f)
	if s == nil {
		return 0, false
	}
	s.each(start, end, func(a, b float64) {
		if v := max(a, b); !ok || v > largest {
			largest, ok = v, true
		}
	})
	return largest, ok
}

// Mask returns the union of the bits of a mask field in the covered part of [start, end].
func (x DeviceView) Mask(f Field, start, end int64) (bits uint64) {
	if s := x.field(f); s != nil {
		s.each(start, end, func(a, _ float64) { bits |= uint64(a) })
	}
	return bits
}

// Value returns a field at time t by linear interpolation between its neighbors; for a counter the
// value since an unknown origin, which never decreases: a reset adds nothing, and only differences
// are meaningful. It returns false if t is not between two samples (Coverage reports whether they
// are near).
func (x DeviceView) Value(f Field, t int64) (float64, bool) {
	s := x.field(f)
	if s == nil {
		return 0, false
	}
	return s.value(t)
}

// Range returns the times of the oldest and the newest sample of a field in the ring; 0, 0 if there
// is none.
func (x DeviceView) Range(f Field) (oldest, newest int64) {
	if s := x.field(f); s != nil {
		return s.first().t, s.last().t
	}
	return 0, 0
}

// Times appends the times of the field's samples in [start, end] to dst.
func (x DeviceView) Times(f Field, start, end int64, dst []int64) []int64 {
	s := x.field(f)
	if s == nil {
		return dst
	}
	for i := s.after(start - 1); i < s.tail && s.at(i).t <= end; i++ {
		dst = append(dst, s.at(i).t)
	}
	return dst
}

// Changes appends the changes of a counter after a time to dst. The oldest one in the ring is not
// Covered if earlier ones were evicted after that time.
func (x DeviceView) Changes(f Field, after int64, dst []instrument.Change) []instrument.Change {
	s := x.field(f)
	if s == nil {
		return dst
	}
	for i := s.after(after); i < s.tail; i++ {
		p := s.at(i)
		covered := i > s.head && p.covered > s.at(i-1).covered
		dst = append(dst, instrument.Change{
			Time: p.t, Since: s.before[i&uint64(len(s.pts)-1)], Value: s.base + p.v, Covered: covered,
		})
	}
	return dst
}

// Values appends the values of a field after a time to dst.
func (x DeviceView) Values(f Field, after int64, dst []TimedValue) []TimedValue {
	s := x.field(f)
	if s == nil {
		return dst
	}
	for i := s.after(after); i < s.tail; i++ {
		dst = append(dst, TimedValue{s.at(i).t, s.at(i).v})
	}
	return dst
}

// TimedValue is a value of a field at a time in Unix nanoseconds.
type TimedValue struct {
	Time  int64
	Value float64
}

// LastRead returns when a field was read last, also if the value repeats the previous one; 0:
// never.
func (x DeviceView) LastRead(f Field) int64 {
	if s := x.field(f); s != nil {
		return s.read
	}
	return 0
}

// UpdatePeriod returns the measured time between two changes of a counter, never below the time
// between its samples; 0 while unknown (fewer than 8 changes) and for fields that are not counters.
func (x DeviceView) UpdatePeriod(f Field) time.Duration {
	if s := x.field(f); s != nil {
		return time.Duration(s.period.value())
	}
	return 0
}

// Coverage returns the part of [start, end] between samples at most 3 intervals apart (0 to 1) and
// the number of samples in it, both of the device's first live field in the order of the constants,
// usually Energy.
func (x DeviceView) Coverage(start, end int64) (coverage float64, samples int) {
	s := x.d.primary
	switch {
	case s == nil || start > s.last().t:
		x.st.Stats.MissNew.Add(1)
		return 0, 0
	case end < s.first().t:
		x.st.Stats.MissOld.Add(1)
		return 0, 0
	}
	if i := s.after(start - 1); i < s.tail && s.at(i).t <= end {
		samples = int(s.after(end) - i)
	}
	if end <= start {
		return 0, samples
	}
	_, covered := s.between(start, end)
	return float64(covered) / float64(end-start), samples
}

// Events appends the events in [start, end] to dst, oldest first.
func (x DeviceView) Events(start, end int64, dst []Event) []Event {
	for _, e := range x.d.events {
		if e.Time > end {
			break
		}
		if e.Time >= start {
			dst = append(dst, e)
		}
	}
	return dst
}
