// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package regression finds operations whose GPU time or energy, per item if items are known, rose since the previous
// version of the service, or since the same hour of the day before.
//
// It compares logarithms, so a ratio is one of geometric means and a rare slow run does not decide. The unit of the
// comparison is not the run but the mean of a block of time, and 16 to 31 blocks are a side. Values close in time are
// correlated: the interval is Welch's, widened by the correlation of neighboring blocks, and there is no comparison if
// the load changes more slowly than a side is long. Blocks get longer as a version runs, from 10 s to 21 minutes, and
// the baseline's are as long and its latest: with everything that the version before ever ran, the hour of a deployment
// would decide. A finding needs the whole interval above the threshold, at 99.99 %.
package regression

import (
	"math"
	"strings"
	"time"

	"github.com/hashicorp/go-version"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Confidence is the level of the intervals.
const Confidence = semconv.FindingRegressionConfidence

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
	Service                   string
	Namespace, Environment    string // of the service
	Operation, Type, ItemType string
	Model                     string // of the device
	PerItem                   bool
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

	of *Series
}

// Series holds the runs of one operation in one version. Like Tracker, it is not safe for concurrent use.
type Series struct {
	Version string

	op      *operation
	tracker *Tracker
	first   int64 // time of the first run, unix ns
	last    int64
	gone    bool
	all     [quantities]windows
	example [quantities]Example
	days    [quantities]*days
}

// Gone reports whether the series is nil or was evicted; look it up again then.
func (s *Series) Gone() bool { return s == nil || s.gone }

// Holds reports whether the series, which is not gone, is for runs of such a source.
func (s *Series) Holds(version, namespace, environment string, perItem bool) bool {
	k := &s.op.key
	return s.Version == version && k.Namespace == namespace && k.Environment == environment && k.PerItem == perItem
}

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

// Series returns the series of a version of an operation, or nil if there is no room for it. Runs without a version are
// compared with the day before only.
func (t *Tracker) Series(k Key, version string) *Series {
	op := t.ops[k]
	if op == nil {
		if len(t.ops) >= t.max && !t.evict() {
			t.dropped++
			return nil
		}
		for _, s := range []*string{
			&k.Service, &k.Namespace, &k.Environment, &k.Operation, &k.Type, &k.ItemType, &k.Model,
		} {
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
	if version != "" {
		for q := range op.active {
			op.active[q] = [baselines]*Finding{} // of the version before
		}
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

// rolledBack is the time without runs of a version, while others run, after which its regressions are not current.
const rolledBack = int64(15 * time.Minute)

// Active calls fn for every current regression: one that no comparison has refuted, and whose version runs.
func (t *Tracker) Active(fn func(*Finding)) {
	for _, op := range t.ops {
		last := op.lastRun()
		if t.newest-last > forget {
			continue
		}
		for q := range op.active {
			for _, f := range op.active[q] {
				if f != nil && last-f.of.last <= rolledBack {
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
		if !(v > 0 && v <= math.MaxFloat64) {
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
		if due >= 0 {
			s.compareVersions(Quantity(q), due)
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

// compareVersions compares the newest version with the one that ran last before it. Both sides are the latest blocks of
// the given width, so that the load of another time of day does not decide. After the widest window's first comparison
// the baseline is too old to find anything new: a regression only ends then.
func (s *Series) compareVersions(q Quantity, width int) {
	var before *Series
	var space [2][most]block
	var old []block
	for _, o := range s.op.versions {
		if o == s || o.Version == "" {
			continue
		}
		if s.Version == "" || !s.follows(o) {
			return
		}
		if before == nil || o.last > before.last {
			if list := o.all[q].upTo(width, space[0][:0]); list != nil {
				before, old = o, list
			}
		}
	}
	if before == nil {
		return
	}
	onlyEnd := s.all[q].of[widths-1].n > fewest+1
	s.report(q, sincePrevious, before.Version, old, s.all[q].of[width].complete(space[1][:0]), before.example[q],
		s.example[q], onlyEnd)
}

// together is the difference of first runs below which their order does not state which version is newer: both may have
// run before the Collector started.
const together = int64(time.Minute)

// follows reports whether a version is known to be newer than another: it started later or, if both started together,
// its number is higher.
func (s *Series) follows(o *Series) bool {
	if d := s.first - o.first; o.first == 0 || d >= together || d <= -together {
		return d > 0
	}
	return higher(s.Version, o.Version)
}

// higher reports whether version a has a higher number than b. Versions without two numbers, such as hashes of commits,
// have no order.
func higher(a, b string) bool {
	if !strings.Contains(a, ".") || !strings.Contains(b, ".") {
		return false
	}
	x, errX := version.NewVersion(a)
	y, errY := version.NewVersion(b)
	return errX == nil && errY == nil && x.GreaterThan(y)
}

// compareDays compares an hour with the one a day before. If another version ran then, a regression since that version
// is not reported twice.
func (s *Series) compareDays(q Quantity, hour int64) {
	var space [2][perHour]block
	before, now := s.days[q].find(hour-24), s.days[q].find(hour)
	if before == nil && s.op.active[q][sincePrevious] == nil {
		for _, o := range s.op.versions {
			if before == nil {
				before = o.days[q].find(hour - 24)
			}
		}
	}
	if before == nil || now == nil {
		return
	}
	s.report(q, sinceYesterday, Yesterday, before.blocks(space[0][:0]), now.blocks(space[1][:0]), before.example,
		now.example, false)
}

func (s *Series) report(q Quantity, baseline int, name string, before, now []block, exampleBefore, example Example,
	onlyEnd bool,
) {
	diff, half, ok := interval(before, now)
	if !ok {
		return
	}
	t := s.tracker
	slot := &s.op.active[q][baseline]
	if !(math.Exp(diff-half) > 1+t.threshold) {
		if !(math.Exp(diff) > 1+t.threshold) {
			*slot = nil // a finding does not end because an interval got wider
		}
		return
	}
	first := *slot == nil
	if first && onlyEnd {
		return
	}
	f := &Finding{
		Key: s.op.key, Quantity: q, Version: s.Version, Baseline: name, Threshold: t.threshold,
		Ratio: math.Exp(diff), Lower: math.Exp(diff - half), Upper: math.Exp(diff + half),
		Before: Side{runs(before), math.Exp(average(before)), exampleBefore},
		Now:    Side{runs(now), math.Exp(average(now)), example},
		of:     s,
	}
	*slot = f
	if first {
		t.found = append(t.found, f)
	}
}
