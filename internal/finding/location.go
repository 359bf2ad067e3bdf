// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Limits of what a sentence lists.
const (
	MaxPlaces       = 5 // of a finding
	namesInSentence = 3
	longestName     = 80 // runes
)

// Location is where time was spent.
type Location struct {
	Name  string        `json:"name"`         // of a range, call, operator or kernel
	In    string        `json:"in,omitempty"` // range around it
	Time  time.Duration `json:"time_ns"`
	Count int64         `json:"count,omitempty"`
}

// String returns the location with its time.
func (p Location) String() string {
	s := p.Name
	if p.In != "" {
		s += " in " + p.In
	}
	return s + " (" + Duration(p.Time) + ")"
}

// Clip shortens a name so that a sentence stays readable.
func Clip(s string) string {
	if r := []rune(s); len(r) > longestName {
		return string(r[:longestName-1]) + "…"
	}
	return s
}

// Names returns the first locations with their times, for a sentence.
func Names(places []Location) string {
	var list []string
	for _, p := range places[:min(namesInSentence, len(places))] {
		p.Name, p.In = Clip(p.Name), Clip(p.In)
		list = append(list, p.String())
	}
	return strings.Join(list, ", ")
}

// SortLocations sorts locations by time, the longest first.
func SortLocations(list []Location) {
	slices.SortFunc(list, func(a, b Location) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.In, b.In))
	})
}

// Longest sorts the list and returns as many locations as a finding names.
func Longest(list []Location) []Location {
	SortLocations(list)
	return list[:min(MaxPlaces, len(list))]
}
