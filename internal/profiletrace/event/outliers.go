// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"math"
	"time"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// WrongTimes are events whose times cannot be true. Outliers and untimed ones are ignored
// everywhere, overlong ones are shortened.
type WrongTimes struct {
	// Outliers are more than a day from all others, and few. Profilers keep their records in memory,
	// so that no profile has a day without an event and then a handful. Longer pauses of a program
	// that continues afterwards, and all shorter ones, are idle time.
	Outliers Wrong
	// Untimed are activities of a device that start before the call that launched them, by more than
	// the clocks of a file differ. What they were launched for is not recorded. Distance and rarity
	// prove nothing, whereas no work starts before it is launched.
	Untimed Wrong
	// Overlong are kernels whose end cannot be true: later kernels of the same queue started and
	// ended before it. A queue runs one kernel after the other; programmatic dependent launch
	// overlaps only the next one. Such a kernel counts until the next one starts.
	Overlong Wrong
}

// Wrong are events whose times are wrong in one way.
type Wrong struct {
	Count int64
	Named []string // the first three
	kinds [KindCount]int64
}

// add counts an event; text describes it by its name.
func (w *Wrong) add(s *Store, k Kind, name uint32, text func(name string) string) {
	w.Count++
	w.kinds[k]++
	if len(w.Named) < namedEvents {
		w.Named = append(w.Named, text(fmt.Sprintf("%q", spanfacts.ValidText(s.Names.Name(name), spanfacts.MaxText))))
	}
}

const (
	outlierDistance = int64(24 * time.Hour)
	namedEvents     = 3
	outlierClusters = 64 // of events; if there are more, none is omitted
)

// fewOutliers returns how many events can be outliers, of n.
func fewOutliers(n int64) int64 { return min(max(3, n/1000), n/10) }

// apart reports whether b is more than a day after a.
func apart(a, b int64) bool { return b > a && uint64(b)-uint64(a) > uint64(outlierDistance) }

// Each calls f for all records in order of time, except outliers and activities without a usable
// time.
func (s *Store) Each(f func(*Record) error) error {
	if s.wrong.Outliers.Count == 0 {
		return s.timed(f)
	}
	return s.timed(func(r *Record) error {
		if r.Start() < s.firstShown || r.Start()+r.Duration > s.lastShown {
			return nil
		}
		return f(r)
	})
}

// Bound sets the time of the profile from its events and, if it is near them, the file's statement.
func (s *Store) Bound() error {
	s.extent, s.wrong, s.shortened = s.counted, WrongTimes{}, nil
	for _, find := range []func() (found int64, err error){s.findUntimed, s.findOverlong, s.findOutliers} {
		found, err := find()
		if err == nil && found > 0 {
			err = s.measure()
		}
		if err != nil {
			return err
		}
	}
	if s.hasWindow && s.first <= s.last && (apart(s.last, s.windowLast) || apart(s.windowFirst, s.first)) {
		s.hasWindow = false
		s.wrong.Outliers.Named = append(s.wrong.Outliers.Named,
			"when the profiler recorded is omitted: that is more than a day from all events")
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

// findOutliers searches for outliers if events are more than a day apart.
func (s *Store) findOutliers() (found int64, err error) {
	if !apart(s.earliest, s.latest) {
		return 0, nil
	}
	first, last := int64(math.MaxInt64), int64(math.MinInt64) // of clusters that are not few
	few := fewOutliers(int64(s.seq))
	type cluster struct{ first, last, n int64 }
	var clusters []cluster
	err = s.timed(func(r *Record) error {
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
		return 0, err
	}
	for _, c := range clusters {
		if c.n > few {
			first, last = min(first, c.first), max(last, c.last)
		}
	}
	if first > last {
		return 0, nil
	}
	o, hull := Wrong{}, last
	err = s.timed(func(r *Record) error {
		start, end := r.Start(), r.Start()+r.Duration
		if start >= first && start <= hull && !apart(hull, end) {
			last = max(last, end)
			return nil
		}
		o.add(s, r.Kind, r.Name, func(name string) string {
			if r.Kind == KindMemory {
				name = "an event of the allocator"
			}
			what, by := "ends %.1f days after", uint64(end)-uint64(last)
			switch {
			case start < first:
				what, by = "begins %.1f days before", uint64(first)-uint64(start)
			case start > last:
				what, by = "begins %.1f days after", uint64(start)-uint64(last)
			}
			return fmt.Sprintf("%s is omitted: it "+what+" all other events", name, float64(by)/float64(outlierDistance))
		})
		return nil
	})
	if err == nil && o.Count <= few {
		s.wrong.Outliers, s.firstShown, s.lastShown = o, first, last
	}
	return s.wrong.Outliers.Count, err
}
