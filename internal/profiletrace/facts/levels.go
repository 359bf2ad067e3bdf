// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

// Level is the maximum number of bytes in use from a time on, until the next level's.
type Level struct {
	At    int64 `json:"at_unix_ns"`
	Bytes int64 `json:"bytes"`
}

// maxLevels is how many Levels keep: more than a screen has columns.
const maxLevels = 1000

// Levels tracks a quantity over time in bounded memory: for each cell of time it keeps the largest
// value, and cells become longer as more has to be kept.
type Levels struct {
	list []Level
	cell int64 // ns; 0: every value is kept
}

// Add takes the value that holds from at on; times do not fall.
func (l *Levels) Add(at, bytes int64) {
	if n := len(l.list); n > 0 && at < l.list[n-1].At+max(l.cell, 1) {
		l.list[n-1].Bytes = max(l.list[n-1].Bytes, bytes)
		return
	}
	l.list = append(l.list, Level{at, bytes})
	if len(l.list) < maxLevels {
		return
	}
	whole := l.list
	l.cell = max(2*l.cell, 2*(at-whole[0].At)/maxLevels)
	l.list = l.list[:0]
	for _, x := range whole {
		l.Add(x.At, x.Bytes)
	}
}

// From returns the levels, with times moved by base.
func (l *Levels) From(base int64) []Level {
	out := make([]Level, len(l.list))
	for i, x := range l.list {
		out[i] = Level{base + x.At, x.Bytes}
	}
	return out
}
