// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package optable

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// key tells operations apart: one name may be a section in one service and a kernel in another.
type key struct{ name, kind, category string }

// bounds are the values of gpu.roofline.bound.
var bounds = []string{
	semconv.GPURooflineBoundMemory, semconv.GPURooflineBoundCompute, semconv.GPURooflineBoundLaunch,
	semconv.GPURooflineBoundLatency,
}

// stats sums the spans of one operation. All of it are sums, so that what was counted in one place can be moved to
// another.
type stats struct {
	count   int64
	seconds float64 // gpu.duration

	bytes, byteSeconds float64 // of spans that state bytes, and their time
	flops, flopSeconds float64
	roof, roofSeconds  float64 // time-weighted gpu.roofline.utilization (or the one utilisation that is known)
	joules             float64
	metered            int64      // spans with joules
	bounds             [4]float64 // seconds by bound
	pageable           int64      // copies through pageable memory
	held               int64      // spans that did arithmetic while the clock was held back

	items          float64
	itemType       string
	mfu, mfuWeight float64
}

// keyOf is the operation of a span. Profilers number the names of steps: ProfilerStep#7. The batch's memory must not
// live on.
func keyOf(span ptrace.Span, f *spanfacts.Facts) key {
	name := span.Name()
	if f.Kind == spanfacts.Step {
		name, _, _ = strings.Cut(name, "#")
	}
	return key{name, f.Type, f.Category}
}

func statsOf(f *spanfacts.Facts) stats {
	s := stats{count: 1, seconds: f.Time, items: float64(f.Items), itemType: f.ItemType}
	if f.Kind == spanfacts.Step {
		s.seconds, s.items, s.itemType = f.StepTime(), float64(f.StepItems), f.StepItemType
	}
	if f.Size > 0 {
		s.bytes, s.byteSeconds = f.Size, s.seconds
	}
	if f.FLOPs > 0 {
		s.flops, s.flopSeconds = f.FLOPs, s.seconds
		if f.Throttle != "" {
			s.held = 1
		}
	}
	if f.HostMemory == semconv.GPUCopyHostMemoryPageable {
		s.pageable = 1
	}
	if f.HasRoofline {
		s.roof, s.roofSeconds = f.Roofline*s.seconds, s.seconds
	}
	if f.HasEnergy {
		s.joules, s.metered = f.Energy, 1
	}
	if i := slices.Index(bounds, f.Bound); i >= 0 {
		s.bounds[i] = s.seconds
	}
	if f.MFU > 0 {
		s.mfu, s.mfuWeight = f.MFU*s.seconds, s.seconds
	}
	return s
}

// add adds x, or with sign -1 takes it away.
func (s *stats) add(x *stats, sign int64) {
	f := float64(sign)
	s.count += sign * x.count
	s.metered += sign * x.metered
	s.pageable += sign * x.pageable
	s.held += sign * x.held
	for _, sum := range [...]struct {
		to *float64
		of float64
	}{
		{&s.seconds, x.seconds},
		{&s.bytes, x.bytes},
		{&s.byteSeconds, x.byteSeconds},
		{&s.flops, x.flops},
		{&s.flopSeconds, x.flopSeconds},
		{&s.roof, x.roof},
		{&s.roofSeconds, x.roofSeconds},
		{&s.joules, x.joules},
		{&s.items, x.items},
		{&s.mfu, x.mfu},
		{&s.mfuWeight, x.mfuWeight},
	} {
		*sum.to += f * sum.of
	}
	for i, v := range x.bounds {
		s.bounds[i] += f * v
	}
	if x.itemType != "" && s.itemType == "" {
		s.itemType = strings.Clone(x.itemType)
	}
}

// note is what stands out of the operation's runs. What ran while others were held back has the reasons too, so a few
// are none.
func (s *stats) note() string {
	switch {
	case s.pageable > 0:
		return "pageable"
	case s.held*10 > s.count:
		return "throttled"
	}
	return ""
}

// bound is what limited most of the operation's time.
func (s *stats) bound() string {
	best := 0
	for i, v := range s.bounds {
		if v > s.bounds[best] {
			best = i
		}
	}
	if s.bounds[best] <= 0 {
		return ""
	}
	return bounds[best]
}

// Limits of what is kept beside operations; what is beyond is not shown.
const (
	maxServices = 16
	maxLengths  = 4096 // newest requests of a service, for the median
	maxLoops    = 64
	maxRanks    = 4096
)

// lateness is how often and by how many seconds in all a rank was late.
type lateness struct {
	steps   int64
	seconds float64
}

// requests are those of a service, as it saw them.
type requests struct {
	count   int64
	slowest float64
	lengths []float64 // a ring
}

func (t *Table) request(service string, seconds float64) {
	r := t.serve[service]
	if r == nil {
		if len(t.serve) >= maxServices {
			return
		}
		r = &requests{}
		t.serve[strings.Clone(service)] = r
	}
	if len(r.lengths) < maxLengths {
		r.lengths = append(r.lengths, seconds)
	} else {
		r.lengths[r.count%maxLengths] = seconds
	}
	r.count++
	r.slowest = max(r.slowest, seconds)
}

func (t *Table) straggler(span ptrace.Span, rank int64) {
	var x spanfacts.Straggler
	if !x.Load(span) {
		return
	}
	ranks := t.late[x.Loop]
	if ranks == nil {
		if len(t.late) >= maxLoops {
			return
		}
		ranks = map[int64]*lateness{}
		t.late[strings.Clone(x.Loop)] = ranks
	}
	if ranks[rank] == nil {
		if len(ranks) >= maxRanks {
			return
		}
		ranks[rank] = &lateness{}
	}
	ranks[rank].steps++
	ranks[rank].seconds += x.Late
}

// lateRank names the rank that cost a loop most.
func (t *Table) lateRank(loop string) string {
	most, worst := int64(-1), &lateness{}
	for rank, l := range t.late[loop] {
		if l.seconds > worst.seconds || l.seconds == worst.seconds && rank < most {
			most, worst = rank, l
		}
	}
	if worst.steps == 0 {
		return ""
	}
	return fmt.Sprintf("rank %d late by %s", most, duration(worst.seconds/float64(worst.steps)))
}

// requestRows has a row for each service.
func (t *Table) requestRows() (rows [][]string) {
	for service, r := range t.serve {
		sorted := slices.Sorted(slices.Values(r.lengths))
		rows = append(rows, []string{
			printable.Line(service), fmt.Sprint(r.count), duration(sorted[len(sorted)/2]), duration(r.slowest),
		})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return rows
}
