// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/google/pprof/profile"

	"github.com/otelgpu/otelgpu/semconv"
)

// WritePprof writes profiles as one compressed pprof file with all types of values; first is the
// type that viewers show first.
func WritePprof(w io.Writer, list []*Profile, first Type) error {
	return Pprof(list, first).Write(w)
}

// Pprof returns profiles as one pprof profile.
func Pprof(list []*Profile, first Type) *profile.Profile {
	p := &profile.Profile{DefaultSampleType: first.String()}
	for _, t := range Types() {
		p.SampleType = append(p.SampleType, &profile.ValueType{Type: t.String(), Unit: t.Unit()})
	}
	locations := map[*Frame]*profile.Location{}
	var roundings [types]rounding
	var frames []*Frame
	start, end := uint64(0), uint64(0)
	for _, from := range list {
		if start == 0 || from.Start < start {
			start = from.Start
		}
		end = max(end, from.End)
		for _, s := range from.Samples() {
			x := &profile.Sample{Label: map[string][]string{}}
			for i, v := range s.Values {
				x.Value = append(x.Value, roundings[i].next(v))
			}
			frames = s.Stack.Frames(frames[:0])
			for _, frame := range slices.Backward(frames) {
				x.Location = append(x.Location, location(p, locations, frame))
			}
			for _, kv := range s.Labels.texts() {
				x.Label[kv[0]] = []string{kv[1]}
			}
			if s.Labels.Rank >= 0 {
				// As text: the format has no numeric label of value 0.
				x.Label[string(semconv.GPUJobRankKey)] = []string{strconv.FormatInt(s.Labels.Rank, 10)}
			}
			if !s.Link.Span.IsEmpty() {
				x.Label["trace_id"], x.Label["span_id"] = []string{s.Link.Trace.String()}, []string{s.Link.Span.String()}
			}
			p.Sample = append(p.Sample, x)
		}
	}
	p.TimeNanos, p.DurationNanos = int64(start), int64(end-start)
	p.PeriodType = &profile.ValueType{Type: Time.String(), Unit: Time.Unit()}
	p.Period = int64(time.Nanosecond)
	return p
}

func location(p *profile.Profile, known map[*Frame]*profile.Location, f *Frame) *profile.Location {
	if l := known[f]; l != nil {
		return l
	}
	fn := &profile.Function{ID: uint64(len(p.Function) + 1), Name: f.Name, SystemName: f.Full}
	if fn.SystemName == "" {
		fn.SystemName = f.Name
	}
	p.Function = append(p.Function, fn)
	l := &profile.Location{ID: uint64(len(p.Location) + 1), Line: []profile.Line{{Function: fn}}}
	p.Location = append(p.Location, l)
	known[f] = l
	return l
}
