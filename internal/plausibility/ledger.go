// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Contradiction is one observation of two values that cannot both be right.
type Contradiction struct {
	Source string // gpu.measurement.source, or the name of the component that observed it
	Device string // hw.id; empty if it concerns all devices of the source
	Reason Reason
	Found  string // the value in question with its unit, "0 W"
	Other  string // what contradicts it, "300 W of the power sensor"
}

// Entry is what a Ledger knows about one reason of one source. As JSON it is part of the page's
// state.
type Entry struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
	Device string `json:"device,omitempty"` // of the newest observation
	Found  string `json:"found"`
	Other  string `json:"other"`
	Effect string `json:"effect"`
	Remedy string `json:"remedy"`
	Count  int64  `json:"count"`
	Last   int64  `json:"last"` // unix ms
}

// maxSources bounds the sources of a Ledger. Contradictions of further ones are counted as of
// "other".
const maxSources = 64

// Ledger collects contradictions. The zero value is ready for use; all methods are safe for
// concurrent use.
type Ledger struct {
	// Logger logs the first contradiction of each source and reason. Nil: none is logged.
	Logger *zap.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time

	mu      sync.Mutex
	sources map[string]*[NumReasons]Entry
}

// Report counts a contradiction and logs it if it is the first one of its source and reason.
func (l *Ledger) Report(c Contradiction) {
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	info := c.Reason.Info()
	l.mu.Lock()
	if l.sources == nil {
		l.sources = map[string]*[NumReasons]Entry{}
	}
	if l.sources[c.Source] == nil && len(l.sources) >= maxSources {
		c.Source = "other"
	}
	list := l.sources[c.Source]
	if list == nil {
		list = new([NumReasons]Entry)
		l.sources[c.Source] = list
	}
	e := &list[c.Reason]
	*e = Entry{
		Source: c.Source, Reason: info.Name, Device: c.Device, Found: c.Found, Other: c.Other, Effect: info.Effect,
		Remedy: info.Remedy, Count: e.Count + 1, Last: now().UnixMilli(),
	}
	first := e.Count == 1
	l.mu.Unlock()
	if first && l.Logger != nil {
		l.Logger.Warn("device values contradict each other: "+info.Compared+"; "+info.Effect+" ("+info.Remedy+
			"); further ones are counted, not logged",
			zap.String("source", c.Source), zap.String("reason", info.Name), zap.String("hw.id", c.Device),
			zap.String("found", c.Found), zap.String("other", c.Other))
	}
}

// Entries returns the contradictions so far, sorted by source and reason.
func (l *Ledger) Entries() (list []Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, source := range slices.Sorted(maps.Keys(l.sources)) {
		for _, e := range l.sources[source] {
			if e.Count > 0 {
				list = append(list, e)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}
