// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

// updatePeriod measures how often a counter really changes: the mean time between two samples in which it had grown.
// A driver refreshes its energy counter every 20 to 100 ms whatever the rate of reading; a span shorter than that
// holds no information of its own. It cannot see below the sampling interval, so it is the larger of the two.
type updatePeriod struct {
	first, last int64
	changes     int64
}

const (
	minChanges = 8    // fewer say nothing
	maxChanges = 1024 // then the older half is forgotten
)

func (u *updatePeriod) observe(t int64, changed, covered bool) {
	if !covered {
		*u = updatePeriod{}
		return
	}
	if !changed {
		return
	}
	if u.changes == 0 {
		u.first = t
	}
	u.last = t
	if u.changes++; u.changes > maxChanges {
		u.changes /= 2
		u.first = u.last - (u.last-u.first)/2
	}
}

// value is the period in ns; 0 while unknown.
func (u *updatePeriod) value() int64 {
	if u.changes < minChanges {
		return 0
	}
	return (u.last - u.first) / (u.changes - 1)
}
