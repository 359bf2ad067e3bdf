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
)

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
