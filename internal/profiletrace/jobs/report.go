// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Spans returns one span for each job, with an event `rank` for each rank and an event `finding`
// for each that is late.
func Spans(jobs []Job) ptrace.Traces {
	td := ptrace.NewTraces()
	for i := range jobs {
		j := &jobs[i]
		rs := td.ResourceSpans().AppendEmpty()
		m := rs.Resource().Attributes()
		m.PutStr(string(semconv.ServiceNameKey), "profiles")
		sharedcomponent.PutText(m, semconv.GPUJobIDKey, j.ID)
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

func jobSpan(s ptrace.Span, j *Job) {
	sum := sha256.Sum256([]byte(fmt.Sprint(j.ID, j.World, j.Start, j.End, j.Ranks))) // the same profiles give the same IDs
	s.SetTraceID(pcommon.TraceID(sum[:16]))
	s.SetSpanID(pcommon.SpanID(sum[16:24]))
	s.SetName("ranks of a job")
	s.SetKind(ptrace.SpanKindInternal)
	s.SetStartTimestamp(pcommon.Timestamp(j.Start))
	s.SetEndTimestamp(pcommon.Timestamp(j.End))
	s.Attributes().PutStr(string(semconv.GPURankMethodKey), string(j.Method))
	if j.Absent > 0 {
		emit.PutFinding(s, absentFinding(j))
	}
	for _, l := range j.Late {
		v := lateFinding(j, &l)
		emit.PutFinding(s, v)
		m := s.Events().At(s.Events().Len() - 1).Attributes()
		m.PutInt(string(semconv.GPUJobRankKey), l.Rank)
		sharedcomponent.PutText(m, semconv.GPURankRangeKey, l.In)
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
		e := s.Events().AppendEmpty()
		e.SetName("rank")
		e.SetTimestamp(s.EndTimestamp())
		m := e.Attributes()
		m.PutInt(string(semconv.GPUJobRankKey), r.Rank)
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

// lateFinding returns the finding on how much time a late rank costs each of the others.
func lateFinding(j *Job, l *LateRank) finding.Finding {
	late := l.facts(j)
	late.Each, late.Of = l.Each, time.Duration(j.End-j.Start)
	switch most := max(l.Computing, l.Copying, l.Idle); {
	case most <= 0:
	case most == l.Computing:
		late.Did = fmt.Sprintf("it computes for %s longer than the others", finding.Duration(most))
		if l.Kernels != "" {
			late.Did += ": " + l.Kernels
		}
	case most == l.Copying:
		late.Did = fmt.Sprintf("it copies for %s longer than the others", finding.Duration(most))
	default:
		late.Did = fmt.Sprintf("its device is idle for %s longer than the others'", finding.Duration(most))
		if l.In != "" {
			late.Did += ", its host mostly in " + l.In
		}
	}
	if len(l.At) > 0 {
		late.Last = names(l.At)
	}
	v := finding.LateRank(&late, notable, cmp.Or(l.Certainty, finding.Low))
	if j.Method != ByArrival && v.Certainty == finding.High {
		v.Certainty = finding.Medium
	}
	v.Evidence = fmt.Sprintf("%d ranks compared by %s%s", len(j.Ranks), strings.ReplaceAll(string(j.Method), "_", " "),
		l.chance(len(j.Ranks)))
	return v
}

func putTime(m pcommon.Map, k attribute.Key, d time.Duration) { m.PutDouble(string(k), d.Seconds()) }

// says returns the text of the finding on a job.
func says(j *Job) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d ranks of one job", len(j.Ranks))
	if j.World > 0 {
		fmt.Fprintf(&b, " of %d", j.World)
	}
	if j.ID != "" {
		fmt.Fprintf(&b, ", %s", j.ID)
	}
	b.WriteString(": ")
	late := "no rank is far from the others"
	if len(j.Late) > 0 {
		facts := j.Late[0].facts(j)
		late = facts.Sentence()
	}
	switch j.Method {
	case ByArrival, ByLength:
		collectively(&b, j)
	case ByCommunication:
		b.WriteString("no collectives of several ranks match; by how long they communicate in all, " + late)
	default:
		b.WriteString("they have no collectives to compare; by their own time in steps (without communication that nothing " +
			"hides), " + late)
	}
	text := strings.TrimSpace(b.String())
	if len(j.Unrecorded) > 0 {
		text = fmt.Sprintf("%s. Not judged: %s, whose work is not recorded in full.", strings.TrimSuffix(text, "."),
			listed(j.Unrecorded))
	}
	if len(j.Missing) > 0 && j.Absent == 0 {
		text = fmt.Sprintf("%s. There is no profile of %s, which may be late, too.", strings.TrimSuffix(text, "."),
			listed(j.Missing))
	}
	return text
}

// collectively describes the result of collectives that match.
func collectively(b *strings.Builder, j *Job) {
	if j.Bubbles > 0 {
		fmt.Fprintf(b, "no rank is late: they are stages of a pipeline that compute equally long, and for "+
			"%.0f %% of the time they wait for each other's results (bubbles); more micro-batches in a step or an "+
			"interleaved schedule make that less", 100*j.Bubbles)
		return
	}
	for i := range j.SlowGroups {
		b.WriteString(j.SlowGroups[i].says())
	}
	for _, c := range j.Carried {
		fmt.Fprintf(b, "rank %d was %s later than its peers when its profile began: that was caused before. ", c.Rank,
			FormatTime(c.Late))
	}
	if j.Absent > 0 {
		late := j.absentFacts()
		fmt.Fprintf(b, "%s: even the last rank with one waits, %s in all, for longer than any of these ranks is late. ",
			late.Sentence(), FormatTime(j.Absent))
		if j.AbsentOrLink != "" {
			fmt.Fprintf(b, "That is the same in each step, so a slow link of group %s explains it equally well. ",
				j.AbsentOrLink)
		}
		fmt.Fprintf(b, "Profile %s, too. ", listed(j.Missing))
		return
	}
	if len(j.Late) == 0 {
		b.WriteString(observed(j))
		return
	}
	rows := map[int64]Rank{}
	for _, r := range j.Ranks {
		rows[r.Rank] = r
	}
	for i, l := range j.Late {
		r, facts := rows[l.Rank], l.facts(j)
		if i > 0 {
			fmt.Fprintf(b, "Then %s%s: last at %d, %s each, %s. ", facts.Sentence(), l.chance(len(j.Ranks)), r.Last,
				FormatTime(l.Each), when(&l))
			continue
		}
		fmt.Fprintf(b,
			"%s%s: it arrives last at %d of %d collectives (%s), and they wait %s because of it, %s each",
			facts.Sentence(), l.chance(len(j.Ranks)), r.Last, r.Collectives, longest(&l, r.Last),
			FormatTime(r.Caused), FormatTime(l.Each))
		if len(j.Late) > 1 {
			fmt.Fprintf(b, ", %s", when(&l))
		}
		b.WriteString(". ")
		const least = 0.1 // share of the lateness below which the text omits a cause
		var parts []string
		part := func(t time.Duration, what string) {
			if float64(t) > least*float64(l.Each) {
				parts = append(parts, FormatTime(t)+" "+what)
			}
		}
		computation := "more of computation"
		if l.Kernels != "" {
			computation += " (" + l.Kernels + ")"
		}
		part(l.Computing, computation)
		part(l.Copying, "more of copies")
		idle := "more with its device idle"
		if l.In != "" {
			idle += fmt.Sprintf(", while its host was mostly in %s (%s)", l.In, FormatTime(l.InTime))
		}
		part(l.Idle, idle)
		if len(parts) > 0 {
			b.WriteString(activityStart + ", against the others' median, " + strings.Join(parts, "; ") + ". ")
		}
	}
	if j.WaitingShare > 0 {
		fmt.Fprintf(b, "Of the others' communication %.0f %% is waiting for a late rank. ", 100*j.WaitingShare)
	}
	if j.Method == ByLength {
		b.WriteString("Their clocks cannot be aligned: who runs a collective shortest is taken to come last. ")
	}
}

// activityStart and pathStart begin what is said of a late rank's work, and of the critical path.
const (
	activityStart = "Before those it has"
	pathStart     = "Critical path across the ranks"
)

// Paragraphs divides what is said of the job into parts of a few lines each.
func (j *Job) Paragraphs() (list []string) {
	text := j.Says
	for _, start := range []string{activityStart, pathStart} {
		if at := strings.Index(text, start); at > 0 {
			list = append(list, strings.TrimSpace(text[:at]))
			text = text[at:]
		}
	}
	return append(list, text)
}

// facts returns the facts of the sentence on the rank.
func (l *LateRank) facts(j *Job) finding.Late {
	f := finding.Late{Rank: l.Rank, Ranks: cmp.Or(j.World, int64(len(j.Ranks))), By: l.Excess}
	if l.Hits > 0 {
		f.Hits, f.Steps, f.By = int64(l.Hits), int64(l.Steps), l.InHits
	}
	return f
}

// chance returns how sure it is that the rank is late.
func (l *LateRank) chance(ranks int) string {
	if l.Steps == 0 {
		return ""
	}
	text := ""
	if l.Rounds > 0 {
		text = fmt.Sprintf(", slowest before %d of %s that one rank delays", l.RoundHits,
			finding.Count(int64(l.Rounds), "collective", "collectives"))
	}
	switch {
	case l.P == 0 && l.Steps < straggler.StepsToJudge(ranks, ranks):
		return text + fmt.Sprintf(" (certainty low: too few steps to exclude chance; %d suffice)",
			straggler.StepsToJudge(ranks, ranks))
	case l.P == 0:
		return text + " (certainty low: by more than the noise of its peers explains)"
	case l.P < 0.001:
		return text + " (by chance: p < 0.001)"
	}
	return text + fmt.Sprintf(" (by chance: p = %.2g)", l.P)
}

func (g *SlowGroup) says() string {
	text := fmt.Sprintf("the link of group %s is slow: its transfers of %s (%s) take %s per step", g.Group,
		finding.Size(g.Bytes), g.Collective, FormatTime(g.Time))
	if g.Sister > 0 {
		return text + fmt.Sprintf(", %.2g times as long as in the fastest group of its kind (%s). ",
			float64(g.Time)/float64(g.Sister), FormatTime(g.Sister))
	}
	return text + fmt.Sprintf(", at %.2g %% of the rate of the link; no other group can be compared (certainty low). ",
		100*g.LinkShare)
}

// slowFinding returns the finding on a group whose transfers take long. No rank is the cause.
func slowFinding(j *Job, g *SlowGroup) finding.Finding {
	v := finding.New(semconv.GPUFindingKindSlowGroup, finding.Medium)
	v.Subject, v.Gain, v.Threshold = "group "+g.Group, g.Each*time.Duration(g.Steps), straggler.Material
	v.Share = float64(v.Gain) / float64(max(1, j.End-j.Start))
	v.Chain = []string{
		strings.TrimSuffix(g.says(), ". "), fmt.Sprintf("all its ranks wait %s longer in each step", FormatTime(g.Each)),
	}
	v.Evidence = fmt.Sprintf("%d ranks compared, %d steps; from the last arrival to the end", len(j.Ranks), g.Steps)
	if g.Sister == 0 {
		v.Certainty = finding.Low
	}
	return v
}

// observed describes a job in which no rank is named.
func observed(j *Job) string {
	o, window := j.Observed, float64(max(1, j.End-j.Start))
	switch {
	case o == nil || float64(o.Each) < notable*window:
		return fmt.Sprintf("no rank is late: at the collectives they wait less than %.0f %% of the time for any", 100*notable)
	case o.TooFew():
		return fmt.Sprintf("not judged: %s of %d ranks cannot tell a late rank from chance; record %d or more. In step %d, "+
			"rank %d was %s later than its peers; it arrives last at %d of %d collectives, at which ranks wait %s in the mean",
			finding.Count(int64(o.Steps), "step", "steps"), o.Peers, o.Needs, o.Step, o.Rank, FormatTime(o.Late), o.Last, o.Of,
			FormatTime(o.Each))
	}
	return fmt.Sprintf("no rank is late: lateness changes among ranks, which wait %s each, %s per step. None is the "+
		"slowest more often than by chance (most: rank %d, in %d of %d steps)", FormatTime(o.Each),
		FormatTime(o.Each/time.Duration(max(1, o.Steps))), o.Rank, o.Hits, o.Steps)
}

// longest lists the collectives at which the others waited longest for a rank, of those at which it
// arrived last.
func longest(l *LateRank, last int) string {
	n := 0
	for _, at := range l.At {
		n += at.Count
	}
	if n < last {
		return "the longest waits: " + names(l.At)
	}
	return names(l.At)
}

func when(l *LateRank) string {
	if l.First == l.Last {
		return fmt.Sprintf("at %s of its window", FormatTime(l.First))
	}
	return fmt.Sprintf("from %s to %s of its window", FormatTime(l.First), FormatTime(l.Last))
}

// names lists the collectives with their counts, grouped by name.
func names(list []LateAt) string {
	var order []string
	counts := map[string]int{}
	for _, at := range list {
		if counts[at.Collective] == 0 {
			order = append(order, at.Collective)
		}
		counts[at.Collective] += at.Count
	}
	const most = 3
	for i, name := range order {
		order[i] = fmt.Sprintf("%d × %s", counts[name], name)
	}
	if len(order) > most {
		order = append(order[:most], "…")
	}
	return strings.Join(order, ", ")
}

// FormatTime formats a time with two decimals.
func FormatTime(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d.Abs() >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d.Abs() >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0f µs", d.Seconds()*1e6)
}
