// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"slices"
	"sort"
)

// maxPoints bounds the points of an activity. Then its older half is merged by twos: sums stay, and
// the busy time of a moment becomes a mean.
const maxPoints = 2048

// Activity is how long a device was busy. It grows in time order.
type Activity struct{ points []activityPoint }

// activityPoint has the sums up to a time.
type activityPoint struct {
	t           int64 // unix ns
	busy, known int64 // ns
}

// Add notes that the device was busy for a share of an interval in unix ns, which ranges from 0 to 1.
// Time that is known already does not count again.
func (a *Activity) Add(from, to int64, share float64) {
	n := len(a.points)
	if n > 0 {
		from = max(from, a.points[n-1].t)
	}
	if from >= to {
		return
	}
	if n == 0 || from > a.points[n-1].t {
		p := activityPoint{t: from}
		if n > 0 {
			p.busy, p.known = a.points[n-1].busy, a.points[n-1].known
		}
		a.points = append(a.points, p)
		n++
	}
	last := a.points[n-1]
	next := activityPoint{to, last.busy + int64(min(max(share, 0), 1)*float64(to-from)), last.known + to - from}
	if n > 1 {
		// Constant activity needs no further point.
		before := a.points[n-2]
		dt, busy := last.t-before.t, last.busy-before.busy
		if last.known-before.known == dt && (share <= 0 && busy == 0 || share >= 1 && busy == dt) {
			a.points[n-1] = next
			return
		}
	}
	if a.points = append(a.points, next); len(a.points) > maxPoints {
		kept := a.points[:0]
		for i, p := range a.points {
			if i%2 == 0 || i >= maxPoints/2 {
				kept = append(kept, p)
			}
		}
		a.points = kept
	}
}

// Until returns the end of what is known, in unix ns; 0: nothing.
func (a *Activity) Until() int64 {
	if n := len(a.points); n > 0 {
		return a.points[n-1].t
	}
	return 0
}

// at returns the sums up to a time.
func (a *Activity) at(t int64) (busy, known int64) {
	i := sort.Search(len(a.points), func(i int) bool { return a.points[i].t >= t })
	if i == len(a.points) {
		i--
	}
	if i < 0 || i == 0 && t <= a.points[0].t {
		return 0, 0
	}
	p := a.points[i]
	if t >= p.t {
		return p.busy, p.known
	}
	before := a.points[i-1]
	part := float64(t-before.t) / float64(p.t-before.t)
	return before.busy + int64(part*float64(p.busy-before.busy)), before.known + int64(part*float64(p.known-before.known))
}

// fill adds an interval to the buckets: busy, idle, or unknown.
func (a *Activity) fill(sums *[Buckets]int64, from, to int64) {
	if from >= to {
		return
	}
	busy, known := a.at(to)
	b, k := a.at(from)
	busy, known = busy-b, known-k
	known = min(max(known, busy), to-from)
	busy = min(busy, known)
	sums[Busy] += busy
	sums[Idle] += known - busy
	sums[Unknown] += to - from - known
}

// extend appends what another one knows of later times.
func (a *Activity) extend(b *Activity) {
	for i := range b.points[min(1, len(b.points)):] {
		p, next := b.points[i], b.points[i+1]
		if known := next.known - p.known; known > 0 {
			// Merged points may contain a gap, which is put at the end.
			a.Add(p.t, p.t+known, float64(next.busy-p.busy)/float64(known))
		}
	}
}

// device returns the activity of a device that no rank has.
func (j *Job) device(id string) *Activity {
	if j.devices == nil {
		j.devices = map[string]*Activity{}
	}
	a := j.devices[id]
	if a == nil && len(j.devices) < MaxRanks {
		a = &Activity{}
		j.devices[id] = a
	}
	return a
}

// On notes the device of a rank.
func (j *Job) On(of int64, id string) {
	r := j.ranks[of]
	if r == nil || r.device == id || len(j.on) >= 2*MaxRanks {
		return
	}
	if j.on == nil {
		j.on = map[string]int64{}
	}
	r.device, j.on[id] = id, of
	if a := j.devices[id]; a != nil {
		r.active.extend(a)
		delete(j.devices, id)
	}
}

// Devices calls f for each device of a rank, with the end of the rank's last span.
func (j *Job) Devices(f func(rank int64, id string, end int64)) {
	for of, r := range j.ranks {
		if r.device != "" {
			f(of, r.device, r.end())
		}
	}
}

// Active returns the activity of a device, to which the caller adds; nil if the device is not the
// job's any more, or there are too many.
func (j *Job) Active(id string) *Activity {
	of, ok := j.on[id]
	if !ok {
		return j.device(id)
	}
	if r := j.ranks[of]; r.device == id {
		return &r.active
	}
	return nil
}

// Present notes that the job has a device during an interval in unix ns, spans or not.
func (j *Job) Present(from, to int64) {
	if j.Start == 0 || from < j.Start {
		j.Start = from
	}
	j.End = max(j.End, to)
}

// Absorb adds the devices of an account without spans, which turned out to be the same job.
func (j *Job) Absorb(other *Job) {
	if other.Start > 0 {
		j.Present(other.Start, other.End)
	}
	for id, b := range other.devices {
		if a := j.Active(id); a != nil {
			// What the job knows is the end of what the other one knew.
			whole := Activity{points: slices.Clone(b.points)}
			whole.extend(a)
			*a = whole
		}
	}
}

// others adds the devices without a rank to the buckets, and returns their number. While the device
// of a rank is unknown, it may be one of them.
func (j *Job) others(sums *[Buckets]int64) int {
	for _, r := range j.ranks {
		if r.device == "" {
			return 0
		}
	}
	for _, a := range j.devices {
		a.fill(sums, j.Start, j.End)
	}
	return len(j.devices)
}
