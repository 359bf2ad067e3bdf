// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"math"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Outliers are events whose time is considered wrong: they are more than a day from all others, and
// few. Profilers keep their records in memory, so that no profile has a day without an event and
// then a handful. They are ignored everywhere. Longer pauses of a program that continues
// afterwards, and all shorter ones, are idle time.
type Outliers struct {
	Count int64
	Named []string // the first three
	kinds [KindCount]int64

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
func (o *Outliers) of(r *Record) bool {
	start := r.Start()
	return start < o.first || start > o.last || start+r.Duration > o.last
}

// Each calls f for all records in order of time, except outliers and activities without a usable
// time.
func (s *Store) Each(f func(*Record) error) error {
	if s.outliers.Count == 0 {
		return s.timed(f)
	}
	return s.timed(func(r *Record) error {
		if s.outliers.of(r) {
			return nil
		}
		return f(r)
	})
}

// Bound sets the time of the profile from its events and, if it is near them, the file's statement.
func (s *Store) Bound() error {
	if err := s.findUntimed(); err != nil {
		return err
	}
	if err := s.findOverlong(); err != nil {
		return err
	}
	if err := s.findOutliers(); err != nil {
		return err
	}
	if s.hasWindow && s.first <= s.last && (apart(s.last, s.windowLast) || apart(s.windowFirst, s.first)) {
		s.hasWindow = false
		s.outliers.Named = append(s.outliers.Named, "when the profiler recorded is omitted: that is more than a day "+
			"from all events")
	}
	if s.hasWindow {
		s.first, s.last = min(s.first, s.windowFirst), max(s.last, s.windowLast)
	}
	if s.first > s.last {
		s.first, s.last = 0, 0
	}
	// times without a known origin: OTLP has no instant before 1970, and 0 means none
	if s.Meta.Base == 0 && s.first <= 0 {
		s.Meta.Base = 1 - s.first
	}
	if s.Meta.Base > MaxTime || s.Meta.Base < 0 || s.first+s.Meta.Base < 0 || s.last > 1<<63-1-s.Meta.Base {
		return fmt.Errorf("%w: events from %d to %d ns after the base of %d ns", ErrTimeRange, s.first, s.last, s.Meta.Base)
	}
	return nil
}

// findOutliers searches for outliers if events are more than a day apart, and removes them from the
// statistics over all events.
func (s *Store) findOutliers() error {
	s.outliers = Outliers{}
	if !apart(s.earliest, s.latest) {
		return nil
	}
	o := Outliers{first: math.MaxInt64, last: math.MinInt64}
	few := fewOutliers(int64(s.seq))
	type cluster struct{ first, last, n int64 }
	var clusters []cluster
	err := s.timed(func(r *Record) error {
		start, end := r.Start(), r.Start()+min(r.Duration, outlierDistance)
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
			o.first, o.last = min(o.first, c.first), max(o.last, c.last)
		}
	}
	if o.first > o.last {
		return nil
	}
	return s.takeOut(&o, few)
}

// takeOut removes the outliers, if they are few.
func (s *Store) takeOut(o *Outliers, few int64) error {
	first, last, bounds, hull := int64(math.MaxInt64), int64(math.MinInt64), newStepBounds(), o.last
	err := s.timed(func(r *Record) error {
		start, end := r.Start(), r.Start()+r.Duration
		if start < o.first || start > hull || apart(hull, end) {
			o.Count++
			o.kinds[r.Kind]++
			if len(o.Named) < outlierNames {
				o.Named = append(o.Named, s.outlierText(o, r))
			}
			return nil
		}
		o.last = max(o.last, end)
		if t := s.trackList[r.Track]; r.Kind != KindMemory && (t.Device || t.Outer != ProfilerProcess) {
			first, last = min(first, start), max(last, end)
		}
		if r.Kind == KindStep {
			bounds.add(&Event{Start: start, Duration: r.Duration, Name: r.Name})
		}
		return nil
	})
	if err == nil && o.Count > 0 && o.Count <= few {
		s.outliers, s.first, s.last, s.bounds = *o, first, last, bounds
	}
	return err
}

// outlierText names an outlier, and how far it is from the others.
func (s *Store) outlierText(o *Outliers, r *Record) string {
	name, start, end := spanfacts.ValidText(s.Names.Name(r.Name), spanfacts.MaxText), r.Start(), r.Start()+r.Duration
	if name = fmt.Sprintf("%q", name); r.Kind == KindMemory {
		name = "an event of the allocator"
	}
	what, by := "ends %.1f days after", uint64(end)-uint64(o.last)
	switch {
	case start < o.first:
		what, by = "begins %.1f days before", uint64(o.first)-uint64(start)
	case start > o.last:
		what, by = "begins %.1f days after", uint64(start)-uint64(o.last)
	}
	return fmt.Sprintf("%s is omitted: it "+what+" all other events", name, float64(by)/float64(outlierDistance))
}
