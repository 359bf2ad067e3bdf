// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package profiletracetest sums spans as other tools sum the rows of a profiler's file, for tests
// against their numbers.
package profiletracetest

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Span is a span as seen by a reader of traces.
type Span struct {
	Start, End int64 // unix ns
	Name       string
	Attributes map[string]any
}

// Spans returns all spans of a batch.
func Spans(td ptrace.Traces) []Span {
	var out []Span
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				out = append(out, Span{int64(s.StartTimestamp()), int64(s.EndTimestamp()), s.Name(), s.Attributes().AsRaw()})
			}
		}
	}
	return out
}

// Text returns a string attribute, empty if it is absent.
func (s Span) Text(key string) string { v, _ := s.Attributes[key].(string); return v }

// Int returns an int attribute, 0 if it is absent.
func (s Span) Int(key string) int64 { v, _ := s.Attributes[key].(int64); return v }

// Sum returns the length of all spans together, in ns.
func Sum(list []Span) (ns int64) {
	for _, s := range list {
		ns += s.End - s.Start
	}
	return ns
}

// Bytes returns the bytes moved by all of them.
func Bytes(list []Span) (n int64) {
	for _, s := range list {
		n += s.Int("gpu.io.size")
	}
	return n
}

// Union returns the time in which at least one of them ran, in ns. It sorts the list by start.
func Union(list []Span) int64 {
	slices.SortFunc(list, func(a, b Span) int { return int(a.Start - b.Start) })
	var total, end int64
	for i, s := range list {
		if i == 0 || s.Start > end {
			total += s.End - s.Start
			end = s.End
		} else if s.End > end {
			total += s.End - end
			end = s.End
		}
	}
	return total
}

// Directions are the values of gpu.copy.direction by the names of Nsight Systems and the PyTorch
// profiler.
var Directions = map[string]string{
	"HtoD": "host_to_device", "DtoH": "device_to_host", "DtoD": "device_to_device", "HtoH": "host_to_host",
	"PtoP": "peer_to_peer",
}

// Copies returns the copies of each direction, by its name in Directions.
func Copies(list []Span) map[string][]Span {
	out := map[string][]Span{}
	for name, direction := range Directions {
		for _, s := range list {
			if s.Text("gpu.copy.direction") == direction {
				out[name] = append(out[name], s)
			}
		}
	}
	return out
}
