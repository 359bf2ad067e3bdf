// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ranks

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/internal/gputrace/verdict"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/semconv"
)

// Spans are one span for each job, with an event `rank` for each rank and an event `verdict` for each that is late.
func Spans(jobs []page.Job) ptrace.Traces {
	td := ptrace.NewTraces()
	for i := range jobs {
		j := &jobs[i]
		rs := td.ResourceSpans().AppendEmpty()
		m := rs.Resource().Attributes()
		m.PutStr(string(semconv.ServiceNameKey), "profiles")
		putText(m, semconv.GPUJobIDKey, j.ID)
		if j.World > 0 {
			m.PutInt(string(semconv.GPUJobWorldSizeKey), j.World)
		}
		ss := rs.ScopeSpans().AppendEmpty()
		ss.SetSchemaUrl(semconv.SchemaURL)
		ss.Scope().SetName("github.com/otelgpu/otelgpu/cmd/otelcol-gpu")
		jobSpan(ss.Spans().AppendEmpty(), j)
	}
	return td
}

func jobSpan(s ptrace.Span, j *page.Job) {
	sum := sha256.Sum256([]byte(fmt.Sprint(j.ID, j.World, j.Start, j.End, j.Ranks))) // the same profiles give the same ids
	s.SetTraceID(pcommon.TraceID(sum[:16]))
	s.SetSpanID(pcommon.SpanID(sum[16:24]))
	s.SetName("ranks of a job")
	s.SetKind(ptrace.SpanKindInternal)
	s.SetStartTimestamp(pcommon.Timestamp(j.Start))
	s.SetEndTimestamp(pcommon.Timestamp(j.End))
	s.Attributes().PutStr(string(semconv.GPURankMethodKey), string(j.Method))
	event := func(name string, rank int64) pcommon.Map {
		e := s.Events().AppendEmpty()
		e.SetName(name)
		e.SetTimestamp(s.EndTimestamp())
		e.Attributes().PutInt(string(semconv.GPUJobRankKey), rank)
		return e.Attributes()
	}
	for _, l := range j.Late {
		v := lateVerdict(j, &l)
		gputrace.PutVerdict(s, s.EndTimestamp(), v)
		m := s.Events().At(s.Events().Len() - 1).Attributes()
		m.PutInt(string(semconv.GPUJobRankKey), l.Rank)
		putText(m, semconv.GPURankRangeKey, l.In)
		if len(l.At) == 0 {
			continue
		}
		names := m.PutEmptySlice(string(semconv.GPURankCollectiveNamesKey))
		for _, at := range l.At {
			names.AppendEmpty().SetStr(at.Collective)
		}
		putTime(m, semconv.GPURankMoreDurationKey("computing"), l.Computing)
		putTime(m, semconv.GPURankMoreDurationKey("copying"), l.Copying)
		putTime(m, semconv.GPURankMoreDurationKey("idle"), l.Idle)
	}
	for _, r := range j.Ranks {
		m := event("rank", r.Rank)
		putTime(m, semconv.GPURankComputeDurationKey, r.Computing)
		putTime(m, semconv.GPURankCommDurationKey, r.Communicating)
		if r.Collectives == 0 {
			continue
		}
		m.PutInt(string(semconv.GPURankCollectiveCountKey), int64(r.Collectives))
		m.PutInt(string(semconv.GPURankLastCountKey), int64(r.Last))
		putTime(m, semconv.GPURankWaitDurationKey, r.Waited)
		putTime(m, semconv.GPURankHeldUpDurationKey, r.HeldUp)
		putTime(m, semconv.GPURankCausedDurationKey, r.Caused)
	}
}

// lateVerdict is what a late rank costs each of the others.
func lateVerdict(j *page.Job, l *page.LateRank) verdict.Verdict {
	did := fmt.Sprintf("rank %d holds the others up", l.Rank)
	switch most := max(l.Computing, l.Copying, l.Idle); {
	case most <= 0:
	case most == l.Computing:
		did = fmt.Sprintf("rank %d computes for %s longer than the others", l.Rank, span(most))
	case most == l.Copying:
		did = fmt.Sprintf("rank %d copies for %s longer than the others", l.Rank, span(most))
	default:
		did = fmt.Sprintf("rank %d has its device idle for %s longer than the others", l.Rank, span(most))
		if l.In != "" {
			did += ", its host mostly in " + l.In
		}
	}
	v := verdict.Verdict{
		Kind: verdict.KindLateRank, Subject: fmt.Sprintf("rank %d", l.Rank), Gain: l.Each, Threshold: notable,
		Certainty: verdict.High, Chain: []string{did},
	}
	if j.Method != page.ByArrival {
		v.Certainty = verdict.Medium
	}
	if len(l.At) > 0 {
		v.Chain = append(v.Chain, "it comes last at "+names(l.At))
	}
	v.Chain = append(v.Chain, fmt.Sprintf("each of the others waits %s for it", span(l.Each)))
	if length := j.End - j.Start; length > 0 {
		v.Share = float64(l.Each) / float64(length)
	}
	v.Evidence = strings.TrimSpace(fmt.Sprintf("%d ranks compared by %s", len(j.Ranks),
		strings.ReplaceAll(string(j.Method), "_", " ")))
	return v
}

func putText(m pcommon.Map, k attribute.Key, v string) {
	if v != "" {
		m.PutStr(string(k), v)
	}
}

func putTime(m pcommon.Map, k attribute.Key, d time.Duration) { m.PutDouble(string(k), d.Seconds()) }
