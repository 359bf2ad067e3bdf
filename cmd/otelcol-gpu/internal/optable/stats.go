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

// The sums that are kept of an operation, all of its spans but where it says otherwise.
const (
	count       = iota // spans
	seconds            // gpu.duration
	bytes              // of spans that state them,
	byteSeconds        // and their time
	flops
	flopSeconds
	roof // time-weighted gpu.roofline.utilization (or the one utilisation that is known)
	roofSeconds
	joules
	metered  // spans with joules
	pageable // copies through pageable memory
	held     // spans that did arithmetic while the clock was held back
	items
	mfu // time-weighted
	mfuSeconds
	boundSeconds                             // by bound
	sums         = boundSeconds + boundCount // how many there are
)

// bounds are the values of gpu.roofline.bound.
var bounds = [boundCount]string{
	semconv.GPURooflineBoundMemory, semconv.GPURooflineBoundCompute, semconv.GPURooflineBoundLaunch,
	semconv.GPURooflineBoundLatency,
}

const boundCount = 4

// stats sums the spans of one operation. All of it are sums, so that what was counted in one place can be moved to
// another.
type stats struct {
	sum      [sums]float64
	itemType string
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
	time, n := f.Time, f.Items
	s := stats{itemType: f.ItemType}
	if f.Kind == spanfacts.Step {
		time, n, s.itemType = f.StepTime(), f.StepItems, f.StepItemType
	}
	s.sum[count], s.sum[seconds], s.sum[items] = 1, time, float64(n)
	if f.Size > 0 {
		s.sum[bytes], s.sum[byteSeconds] = f.Size, time
	}
	if f.FLOPs > 0 {
		s.sum[flops], s.sum[flopSeconds] = f.FLOPs, time
		if f.Throttle != "" {
			s.sum[held] = 1
		}
	}
	if f.HostMemory == semconv.GPUCopyHostMemoryPageable {
		s.sum[pageable] = 1
	}
	if f.HasRoofline {
		s.sum[roof], s.sum[roofSeconds] = f.Roofline*time, time
	}
	if f.HasEnergy {
		s.sum[joules], s.sum[metered] = f.Energy, 1
	}
	if i := slices.Index(bounds[:], f.Bound); i >= 0 {
		s.sum[boundSeconds+i] = time
	}
	if f.MFU > 0 {
		s.sum[mfu], s.sum[mfuSeconds] = f.MFU*time, time
	}
	return s
}

// add adds x, or with sign -1 takes it away.
func (s *stats) add(x *stats, sign float64) {
	for i, v := range x.sum {
		s.sum[i] += sign * v
	}
	if x.itemType != "" && s.itemType == "" {
		s.itemType = strings.Clone(x.itemType)
	}
}

// note is what stands out of the operation's runs. What ran while others were held back has the reasons too, so a few
// are none.
func (s *stats) note() string {
	switch {
	case s.sum[pageable] > 0:
		return "pageable"
	case s.sum[held]*10 > s.sum[count]:
		return "throttled"
	}
	return ""
}

// bound is what limited most of the operation's time; "-" where it is not known.
func (s *stats) bound() string {
	of := s.sum[boundSeconds:]
	longest := slices.Max(of)
	if longest <= 0 {
		return "-"
	}
	return bounds[slices.Index(of, longest)]
}

// rate is a sum divided by another, times a scale; "-" where it is not known.
func (s *stats) rate(of, by int, format string, scale float64) string {
	return ratio(s.sum[of], s.sum[by], format, scale)
}

func (s *stats) energy() string {
	if s.sum[metered] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s.sum[joules])
}

func (s *stats) runs() string { return fmt.Sprint(int64(s.sum[count])) }

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
