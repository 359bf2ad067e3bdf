// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package regression finds operations whose GPU time or energy, per item if items are known, rose since the previous
// version of the service, or since the same hour of the day before.
//
// It compares logarithms, so a ratio is one of geometric means and a rare slow run does not decide. Values close in
// time are correlated, so the unit of the comparison is not the run but the mean of a block of time: blocks get longer
// as time passes, and their number stays between 16 and 32. A finding needs the whole confidence interval of the ratio
// above the threshold. The interval is Welch's, at 99.99 %: a comparison is repeated whenever the length of the blocks
// doubles, at most about 15 times in the life of a version, so that all of them together are wrong in less than 1 of
// 1,000 comparisons, even for operations whose true ratio is exactly the threshold.
package regression

import (
	"math"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Confidence is the level of the intervals.
const Confidence = 0.9999

// Yesterday is the baseline of a comparison within one version. No version can have that name, since it has a space.
const Yesterday = "the day before"

// Quantity is a compared quantity.
type Quantity uint8

// The quantities.
const (
	Time   Quantity = iota // seconds on the device
	Energy                 // J

	quantities = int(iota)
)

// Key identifies an operation whose runs are comparable.
type Key struct {
	Service, Operation, Type, ItemType string
	Model                              string // of the device
	PerItem                            bool
}

// Example is a run near the mean of its side.
type Example struct {
	spanfacts.Key
	Start, End uint64 // unix ns
	distance   float64
	at         int64
}

// Side is one side of a comparison.
type Side struct {
	Count   int64   // runs
	Mean    float64 // geometric; s or J, per item if the key has PerItem
	Example Example
}

// Finding is a regression.
type Finding struct {
	Key
	Quantity            Quantity
	Version, Baseline   string // Baseline is a version or Yesterday
	Ratio, Lower, Upper float64
	Threshold           float64
	Before, Now         Side
}

// Series holds the runs of one operation in one version. Like Tracker, it is not safe for concurrent use.
type Series struct {
	Version string

	op      *operation
	tracker *Tracker
	first   int64 // time of the first run, unix ns
	last    int64
	gone    bool
	all     [quantities]blocks
	example [quantities]Example
	days    [quantities]*days
}

// Gone reports whether the series is nil or was evicted; look it up again then.
func (s *Series) Gone() bool { return s == nil || s.gone }

// PerItem reports whether the runs' values are per item.
func (s *Series) PerItem() bool { return s.op.key.PerItem }

// operation holds the versions of one operation.
type operation struct {
	key      Key
	versions []*Series // in the order of their first runs
	active   [quantities][baselines]*Finding
}

const (
	sincePrevious = iota
	sinceYesterday
	baselines
)

// maxVersions bounds the versions of one operation that are kept.
const maxVersions = 3

// Tracker compares operations. It is not safe for concurrent use.
type Tracker struct {
	threshold float64
	max       int
	ops       map[Key]*operation
	newest    int64
	found     []*Finding
	dropped   int64
}

// forget is how long an operation without runs is kept when there is no room for a new one.
const forget = int64(2 * time.Hour)

// New returns a tracker of at most max operations. The threshold is a share: 0.1 reports what rose by more than 10 %.
func New(threshold float64, maxOperations int) *Tracker {
	return &Tracker{threshold: threshold, max: maxOperations, ops: map[Key]*operation{}}
}

// Series returns the series of a version of an operation, or nil if there is no room for it.
func (t *Tracker) Series(k Key, version string) *Series {
	op := t.ops[k]
	if op == nil {
		if len(t.ops) >= t.max && !t.evict() {
			t.dropped++
			return nil
		}
		for _, s := range []*string{&k.Service, &k.Operation, &k.Type, &k.ItemType, &k.Model} {
			*s = strings.Clone(*s) // a key must not keep the batch's memory alive
		}
		op = &operation{key: k}
		t.ops[k] = op
	}
	for _, s := range op.versions {
		if s.Version == version {
			return s
		}
	}
	if len(op.versions) == maxVersions {
		oldest := 0
		for i, s := range op.versions[:maxVersions-1] {
			if s.last < op.versions[oldest].last {
				oldest = i
			}
		}
		op.versions[oldest].gone = true
		op.versions = append(op.versions[:oldest], op.versions[oldest+1:]...)
	}
	s := &Series{Version: strings.Clone(version), op: op, tracker: t}
	op.versions = append(op.versions, s)
	for q := range op.active {
		op.active[q] = [baselines]*Finding{} // of the version before
	}
	return s
}

// evict removes the operation that was inactive for longest, if that is long enough.
func (t *Tracker) evict() bool {
	var oldest *operation
	at := int64(math.MaxInt64)
	for _, op := range t.ops {
		if last := op.lastRun(); last < at {
			oldest, at = op, last
		}
	}
	if oldest == nil || t.newest-at < forget {
		return false
	}
	for _, s := range oldest.versions {
		s.gone = true
	}
	delete(t.ops, oldest.key)
	return true
}

func (o *operation) lastRun() (last int64) {
	for _, s := range o.versions {
		last = max(last, s.last)
	}
	return last
}

// Take returns the regressions found and the operations without room since the last call.
func (t *Tracker) Take() (found []*Finding, dropped int64) {
	found, dropped = t.found, t.dropped
	t.found, t.dropped = nil, 0
	return found, dropped
}

// Active calls fn for every current regression: one whose last comparison found it, and whose operation runs.
func (t *Tracker) Active(fn func(*Finding)) {
	for _, op := range t.ops {
		if t.newest-op.lastRun() > forget {
			continue
		}
		for q := range op.active {
			for _, f := range op.active[q] {
				if f != nil {
					fn(f)
				}
			}
		}
	}
}

// warmUp is the time after the first run of a version that is not compared: first launches, compilation, caches.
const warmUp = int64(10 * time.Second)

// Add adds a run with its seconds and joules, each 0 if unknown and per item if the key has PerItem.
func (s *Series) Add(values [2]float64, run Example) {
	at := int64(run.End)
	if at <= 0 {
		return
	}
	if s.first == 0 {
		s.first = at
	}
	s.last = max(s.last, at)
	s.tracker.newest = max(s.tracker.newest, at)
	if at-s.first < warmUp {
		return
	}
	for q, v := range values {
		if v <= 0 || v > math.MaxFloat64 {
			continue
		}
		x := math.Log(v)
		b := &s.all[q]
		due := b.add(x, at)
		s.example[q].choose(&run, math.Abs(x-b.mean()), at)
		if s.days[q] == nil {
			s.days[q] = &days{}
		}
		if hour, over := s.days[q].add(x, at, &run); over {
			s.compareDays(Quantity(q), hour)
		}
		if due {
			s.compareVersions(Quantity(q))
		}
	}
}

// staleExample is how long an example is kept though newer runs are further from the mean.
const staleExample = int64(10 * time.Minute)

func (e *Example) choose(run *Example, distance float64, at int64) {
	if e.End == 0 || distance <= e.distance || at-e.at > staleExample {
		*e = *run
		e.distance, e.at = distance, at
	}
}

// compareVersions compares the newest version with the one that ran last before it.
func (s *Series) compareVersions(q Quantity) {
	v := s.op.versions
	if s != v[len(v)-1] {
		return
	}
	var before *Series
	for _, o := range v[:len(v)-1] {
		if len(o.all[q].complete()) >= fewest && (before == nil || o.last > before.last) {
			before = o
		}
	}
	if before == nil {
		return
	}
	s.report(q, sincePrevious, before.Version, &before.all[q], &s.all[q], before.example[q], s.example[q])
}

func (s *Series) compareDays(q Quantity, hour int64) {
	d := s.days[q]
	before, now := d.find(hour-24), d.find(hour)
	if before == nil || now == nil {
		return
	}
	a, b := before.blocks(), now.blocks()
	if a.n <= fewestOfHour || b.n <= fewestOfHour {
		return
	}
	s.report(q, sinceYesterday, Yesterday, a, b, before.example, now.example)
}

func (s *Series) report(q Quantity, baseline int, name string, before, now *blocks, exampleBefore, example Example) {
	diff, half, ok := welch(before.complete(), now.complete())
	if !ok {
		return
	}
	t := s.tracker
	slot := &s.op.active[q][baseline]
	if !(math.Exp(diff-half) > 1+t.threshold) {
		*slot = nil
		return
	}
	f := &Finding{
		Key: s.op.key, Quantity: q, Version: s.Version, Baseline: name, Threshold: t.threshold,
		Ratio: math.Exp(diff), Lower: math.Exp(diff - half), Upper: math.Exp(diff + half),
		Before: Side{before.runs(), math.Exp(average(before.complete())), exampleBefore},
		Now:    Side{now.runs(), math.Exp(average(now.complete())), example},
	}
	first := *slot == nil
	*slot = f
	if first {
		t.found = append(t.found, f)
	}
}
