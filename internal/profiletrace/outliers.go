// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"fmt"
	"math"
	"time"
)

// Outliers are events whose time is considered wrong: they are more than a day from all others, and few. Profilers keep
// their records in memory, so that no profile has a day without an event and then a handful. They are ignored
// everywhere. Longer pauses of a program that continues afterwards, and all shorter ones, are idle time.
type Outliers struct {
	Count int64
	Named []string // the first three
	kinds [kindCount]int64

	first, last int64 // start of the first and end of the last event that is not one of them
}

const (
	outlierDistance = int64(24 * time.Hour)
	outlierNames    = 3
	outlierClusters = 64 // of events; if there are more, none is omitted
)

// fewOutliers returns how many events can be outliers, of n.
func fewOutliers(n int64) int64 { return min(max(3, n/1000), n/10) }

// apart reports whether b is more than a day after a.
func apart(a, b int64) bool { return b > a && uint64(b)-uint64(a) > uint64(outlierDistance) }

// of reports whether the record is one of them.
func (s *Outliers) of(r *record) bool {
	start := r.start()
	return start < s.first || start > s.last || start+r.duration > s.last
}

// each calls f for all records in order of time, but for outliers.
func (p *Profile) each(f func(*record) error) error {
	if p.outliers.Count == 0 {
		return p.sorter.each(f)
	}
	return p.sorter.each(func(r *record) error {
		if p.outliers.of(r) {
			return nil
		}
		return f(r)
	})
}

// bound sets the time of the profile from its events and, if it is near them, the file's statement.
func (p *Profile) bound() error {
	if err := p.findOutliers(); err != nil {
		return err
	}
	if p.hasWindow && p.first <= p.last && (apart(p.last, p.windowLast) || apart(p.windowFirst, p.first)) {
		p.hasWindow = false
		p.outliers.Named = append(p.outliers.Named, "when the profiler recorded is omitted: that is more than a day "+
			"from all events")
	}
	if p.hasWindow {
		p.first, p.last = min(p.first, p.windowFirst), max(p.last, p.windowLast)
	}
	return nil
}

// findOutliers searches for outliers if events are more than a day apart, and removes them from the statistics over all
// events.
func (p *Profile) findOutliers() error {
	p.outliers = Outliers{}
	if !apart(p.earliest, p.latest) {
		return nil
	}
	s := Outliers{first: math.MaxInt64, last: math.MinInt64}
	few := fewOutliers(int64(p.seq))
	type cluster struct{ first, last, n int64 }
	var clusters []cluster
	err := p.sorter.each(func(r *record) error {
		start, end := r.start(), r.start()+min(r.duration, outlierDistance)
		n := len(clusters)
		switch {
		case n > 0 && !apart(clusters[n-1].last, start):
			c := &clusters[n-1]
			c.last = max(c.last, end)
			c.n++
		case n <= outlierClusters:
			clusters = append(clusters, cluster{start, end, 1})
		}
		return nil
	})
	if err != nil || len(clusters) > outlierClusters {
		return err
	}
	for _, c := range clusters {
		if c.n > few {
			s.first, s.last = min(s.first, c.first), max(s.last, c.last)
		}
	}
	if s.first > s.last {
		return nil
	}
	return p.takeOut(&s, few)
}

// takeOut removes the outliers, if they are few.
func (p *Profile) takeOut(s *Outliers, few int64) error {
	first, last, bounds, hull := int64(math.MaxInt64), int64(math.MinInt64), newStepBounds(), s.last
	err := p.sorter.each(func(r *record) error {
		start, end := r.start(), r.start()+r.duration
		if start < s.first || start > hull || apart(hull, end) {
			s.Count++
			s.kinds[r.kind]++
			if len(s.Named) < outlierNames {
				s.Named = append(s.Named, p.outlierText(s, r))
			}
			return nil
		}
		s.last = max(s.last, end)
		if t := p.trackList[r.track]; r.kind != KindMemory && (t.device || t.outer != ProfilerProcess) {
			first, last = min(first, start), max(last, end)
		}
		if r.kind == KindStep {
			bounds.add(&Event{Start: start, Duration: r.duration, Name: r.name})
		}
		return nil
	})
	if err == nil && s.Count > 0 && s.Count <= few {
		p.outliers, p.first, p.last, p.bounds = *s, first, last, bounds
	}
	return err
}

// outlierText names an outlier, and how far it is from the others.
func (p *Profile) outlierText(s *Outliers, r *record) string {
	name, start, end := validText(p.Names.Name(r.name), maxName), r.start(), r.start()+r.duration
	if name = fmt.Sprintf("%q", name); r.kind == KindMemory {
		name = "an event of the allocator"
	}
	what, by := "ends %.1f days after", uint64(end)-uint64(s.last)
	switch {
	case start < s.first:
		what, by = "begins %.1f days before", uint64(s.first)-uint64(start)
	case start > s.last:
		what, by = "begins %.1f days after", uint64(start)-uint64(s.last)
	}
	return fmt.Sprintf("%s is omitted: it "+what+" all other events", name, float64(by)/float64(outlierDistance))
}
