// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spansums"
)

// key identifies an operation: one name may be a section in one service and a kernel in another.
type key struct{ name, kind, category string }

// stats sums the spans of one operation. All fields are sums, so that values counted at one
// position can be moved to another.
type stats struct {
	spansums.Sums
	itemType string
}

// keyOf returns the operation of a span. Profilers number the names of steps: ProfilerStep#7. The
// result must not refer to the batch's memory.
func keyOf(span ptrace.Span, f *spanfacts.Facts) key {
	name := span.Name()
	if f.Kind == spanfacts.Step {
		name, _, _ = strings.Cut(name, "#")
	}
	return key{name, f.Type, f.Category}
}

func statsOf(f *spanfacts.Facts) stats {
	if f.Kind == spanfacts.Step {
		return stats{spansums.Of(f), f.StepItemType}
	}
	return stats{spansums.Of(f), f.ItemType}
}

// add adds x, or with sign -1 subtracts it.
func (s *stats) add(x *stats, sign float64) {
	s.Add(&x.Sums, sign)
	if x.itemType != "" && s.itemType == "" {
		s.itemType = strings.Clone(x.itemType)
	}
}

// note returns what is unusual in the operation's runs. What ran while others were throttled has
// the reasons too, so a few are none.
func (s *stats) note() string {
	switch {
	case s.Sums[spansums.Pageable] > 0:
		return "pageable"
	case s.Sums[spansums.Held]*10 > s.Sums[spansums.Count]:
		return "throttled"
	}
	return ""
}

// rate returns a sum divided by another, times a scale; "-" if it is unknown.
func (s *stats) rate(of, by int, format string, scale float64) string {
	return ratio(s.Sums[of], s.Sums[by], format, scale)
}

func (s *stats) energy() string {
	if s.Sums[spansums.Measured] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", s.Sums[spansums.Energy])
}

func (s *stats) runs() string { return fmt.Sprint(int64(s.Sums[spansums.Count])) }

// Limits of additional data; further data is not shown.
const (
	maxServices = 16
	maxLengths  = 4096 // newest requests of a service, for the median
	maxRanks    = 4096 // of all loops
)

// rankOf is a rank of a loop.
type rankOf struct {
	loop string
	rank int64
}

// lateness is how often and by how many seconds in all a rank was late.
type lateness struct {
	steps   int64
	seconds float64
}

// requests are the requests of a service, as the service measured them.
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
		r = boundedmap.Of(t.serve, strings.Clone(service))
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
	l := t.late[rankOf{x.Loop, rank}]
	if l == nil {
		if len(t.late) >= maxRanks {
			return
		}
		l = boundedmap.Of(t.late, rankOf{strings.Clone(x.Loop), rank})
	}
	l.steps++
	l.seconds += x.Late
}

// lateRank names the rank that cost a loop most.
func (t *Table) lateRank(loop string) string {
	most, worst := int64(-1), &lateness{}
	for k, l := range t.late {
		if k.loop == loop && (l.seconds > worst.seconds || l.seconds == worst.seconds && k.rank < most) {
			most, worst = k.rank, l
		}
	}
	if worst.steps == 0 {
		return ""
	}
	late := finding.Late{Rank: most, By: time.Duration(1e9 * worst.seconds / float64(worst.steps))}
	return late.Sentence()
}

// requestRows returns a row for each service.
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
