// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
)

// Launched reports whether the work of a call has a usable record: an activity with the correlation
// of the call, whose time can be true.
func (s *Store) Launched(correlation int64) bool {
	return s.worked.has(correlation) && !s.lost.has(correlation)
}

// callSample is some correlations of the calls of one name: each of the first, then every second,
// and so on.
type callSample struct {
	calls           int
	list            []int64
	asked, launches bool
}

const (
	sampledCalls = 1 << 8
	sampledNames = 1 << 10
)

func (s *Store) sampleCall(e *Event) {
	c := boundedmap.Bounded(s.calls, e.Name, 0, sampledNames)
	if c.calls++; len(c.list) == sampledCalls {
		c.list = EverySecond(c.list)
	}
	// the stride doubles whenever the list is halved
	if stride := 1 << bits.Len(uint((c.calls-1)/sampledCalls)); (c.calls-1)%stride == 0 {
		c.list = append(c.list, e.Correlation)
	}
}

// Launches reports whether any call of the name, of a sample, launched an activity that is
// recorded.
func (s *Store) Launches(name uint32) bool {
	c := s.calls[name]
	if c == nil {
		return false
	}
	if !c.asked {
		c.asked, c.launches = true, slices.ContainsFunc(c.list, s.worked.has)
	}
	return c.launches
}

// causal returns a filter of records in the order of the sweep: it omits activities that the sweep
// reaches before their launch, although the file has it.
func (s *Store) causal() func(*Record) bool {
	called := &numbers{}
	return func(r *Record) bool {
		switch {
		case r.Correlation == 0:
		case r.Kind == KindRuntime:
			called.add(r.Correlation)
		case r.Kind.Device() && s.called.has(r.Correlation) && !called.has(r.Correlation):
			return false
		}
		return true
	}
}

// timed calls f for all records in order of time, except activities without a usable time.
func (s *Store) timed(f func(*Record) error) error {
	if s.wrong.Untimed.Count == 0 && len(s.shortened) == 0 {
		return s.sorter.each(f)
	}
	keep := func(*Record) bool { return true }
	if s.wrong.Untimed.Count > 0 {
		keep = s.causal()
	}
	return s.sorter.each(func(r *Record) error {
		if !keep(r) {
			return nil
		}
		if end, ok := s.shortened[r.Seq]; ok {
			r.Duration = end - r.Start()
		}
		return f(r)
	})
}

// findUntimed searches for activities without a usable time if one that was launched starts before
// the first launch. If most activities start
// before their launches, the clocks differ, and no record is wrong by itself. Correlations of
// several processes are ambiguous unless they contain the process.
func (s *Store) findUntimed() (int64, error) {
	if s.firstLaunched >= s.firstCall-Skew || len(s.processes) > 1 && s.firstCorrelation <= CorrelationMask {
		return 0, nil
	}
	u, launched := Wrong{}, int64(0)
	var lost []int64
	keep := s.causal()
	err := s.sorter.each(func(r *Record) error {
		if r.Kind.Device() && s.called.has(r.Correlation) {
			launched++
		}
		if !keep(r) {
			lost = append(lost, r.Correlation)
			u.add(s, r.Kind, r.Name, func(name string) string {
				return fmt.Sprintf("%s is omitted: it starts more than %s before its launch", name, time.Duration(Skew))
			})
		}
		return nil
	})
	if err != nil || 2*u.Count > launched {
		return 0, err
	}
	for _, n := range lost {
		s.lost.add(n)
	}
	s.wrong.Untimed = u
	return u.Count, nil
}
