// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/semconv"
)

// summary is what happened below a span and has no separate span.
type summary struct {
	activities [len(summarised)]struct {
		count, time, bytes int64
		sized              bool // some activity states its size
	}
	names   map[uint32]int64 // kernels: time by name
	ranges  int64
	cut     int64
	cutTime int64
	cutSize bool // by the limit on bytes
}

// summarised lists the kinds of activities that a summary distinguishes, with its attributes.
var summarised = [...]struct{ count, time, bytes attribute.Key }{
	{semconv.GPUSummaryKernelCountKey, semconv.GPUSummaryKernelDurationKey, ""},
	{semconv.GPUSummaryCollectiveCountKey, semconv.GPUSummaryCollectiveDurationKey, ""},
	{semconv.GPUSummaryCopyCountKey, semconv.GPUSummaryCopyDurationKey, semconv.GPUSummaryCopySizeKey},
	{semconv.GPUSummaryMemsetCountKey, semconv.GPUSummaryMemsetDurationKey, semconv.GPUSummaryMemsetSizeKey},
}

func (s *summary) add(a *link.Activity) {
	i := 0
	switch {
	case a.Communicates:
		i = 1
	case a.Kind == event.KindCopy:
		i = 2
	case a.Kind == event.KindMemset:
		i = 3
	default:
		if s.names == nil {
			s.names = map[uint32]int64{}
		}
		s.names[a.Name] += a.Duration
	}
	of := &s.activities[i]
	of.count, of.time, of.bytes = of.count+1, of.time+a.Duration, of.bytes+a.Detail.Bytes
	of.sized = of.sized || a.Detail.HasBytes
}

// topKernels is how many names a summary holds.
const topKernels = 5

func (s *spans) summary(m pcommon.Map, sum *summary) {
	if sum == nil {
		return
	}
	for i, of := range sum.activities {
		if of.count == 0 {
			continue
		}
		key := &summarised[i]
		putInt(m, key.count, of.count)
		putSeconds(m, key.time, of.time)
		if key.bytes != "" && of.sized {
			putInt(m, key.bytes, of.bytes)
		}
		if i == 0 {
			times := map[string]int64{}
			for id, t := range sum.names {
				times[s.p.ShortName(id)] += t
			}
			putTexts(m, semconv.GPUSummaryKernelNamesKey, topNames(times))
		}
	}
	if sum.ranges > 0 {
		putInt(m, semconv.GPUSummarySpanCountKey, sum.ranges)
	}
	if sum.cut == 0 {
		return
	}
	s.cut += sum.cut
	putInt(m, semconv.GPUTraceCutCountKey, sum.cut)
	if sum.cutTime > 0 {
		putSeconds(m, semconv.GPUTraceCutDurationKey, sum.cutTime)
	}
	reason := semconv.GPUTraceCutReasonSpanLimit
	if sum.cutSize {
		reason = semconv.GPUTraceCutReasonSizeLimit
	}
	m.PutStr(string(semconv.GPUTraceCutReasonKey), reason)
}
