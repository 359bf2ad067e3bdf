// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/semconv"
)

// leastRequests is the minimum number of requests of a service for a median.
const leastRequests = semconv.FindingSlowRequestRequests

// found returns a finding of live telemetry: the description, the value that is compared with the
// threshold of the kind, and an example trace.
func found(kind, subject, text string, share float64, trace string) finding.Finding {
	f := finding.New(kind, finding.High)
	f.Subject, f.Chain, f.Share, f.Trace = subject, []string{text}, share, trace
	return f
}

// late is a rank that was late in one step.
type late struct {
	spanfacts.Straggler
	service string
	job     string
	rank    int64
	time    float64 // unix ms
	trace   string
}

// occurred notes that a finding occurred in a time, in unix ms.
func occurred(f *finding.Finding, from, to float64) {
	if f.From == 0 || from < f.From {
		f.From = from
	}
	f.To = max(f.To, to)
}

// inBuckets notes the buckets of an operation in a window that have a sum.
func inBuckets(f *finding.Finding, o *operation, w *window, sum int) {
	for i := range o.buckets {
		if b := &o.buckets[i]; b.index >= w.first && b.index <= w.last && b.Sums[sum] > 0 {
			occurred(f, float64(b.index)*bucketSeconds*1e3, float64(b.index+1)*bucketSeconds*1e3)
		}
	}
}

// straggler reads a span of gpu_metrics on a late rank; other spans are ignored.
func (m *Model) straggler(f *spanfacts.Facts, r *spanfacts.Resource, s ptrace.Span) {
	x := late{service: r.Service, job: r.JobID, rank: r.Rank, time: millis(f.End), trace: f.Key.Trace.String()}
	if x.Load(s) {
		m.late.put(x, maxLate)
	}
}

// served reads the span of a request, as its server sees it.
func (m *Model) served(f *spanfacts.Facts) {
	seconds := spanfacts.Elapsed(f.Start, f.End)
	if q := m.requests.Get(f.Key.Trace); q != nil {
		q.Duration = max(q.Duration, seconds)
		return
	}
	m.lengths.Put(f.Key.Trace, max(m.lengths.Get(f.Key.Trace), seconds))
}

// window is the time of a state, in unix ms, and the indices of the operations' buckets in it.
type window struct {
	from, to    float64
	first, last int64
}

// has reports whether a time is in the window.
func (w *window) has(t float64) bool { return t >= w.from && t <= w.to }

// findingsOf collects the findings of a window.
func (m *Model) findingsOf(s *State, w *window) {
	for _, f := range []func(*window) (finding.Finding, bool){
		m.deviceError, m.lateRank, m.slowRequest, m.throttled, m.memoryNearLimit, m.starved, m.pageable,
	} {
		if x, ok := f(w); ok {
			s.Findings = append(s.Findings, x)
		}
	}
}

// lateRank returns the rank that cost its job most, if it was late for the live threshold's share
// of its steps.
func (m *Model) lateRank(w *window) (finding.Finding, bool) {
	type rank struct {
		service, job, loop string
		rank               int64
	}
	type cost struct {
		steps, ranks   int64
		seconds, worst float64
		sections       map[string]float64
		f              finding.Finding // its trace and times
	}
	costs, jobs, loops := map[rank]*cost{}, map[[2]string]bool{}, map[string]bool{}
	m.late.each(func(x *late) {
		if !w.has(x.time) {
			return
		}
		k := rank{x.service, x.job, x.Loop, x.rank}
		jobs[[2]string{x.service, x.job}], loops[x.Loop] = true, true
		c := costs[k]
		if c == nil {
			c = &cost{sections: map[string]float64{}}
			costs[k] = c
		}
		c.steps++
		c.ranks = max(c.ranks, x.Ranks)
		c.seconds += x.Late
		c.sections[x.Section] += x.Delay
		if x.Late >= c.worst {
			c.worst, c.f.Trace = x.Late, x.trace
		}
		occurred(&c.f, x.time, x.time)
	})
	k, c := largest(costs, func(_ rank, c *cost) float64 { return c.seconds })
	if c == nil {
		return finding.Finding{}, false
	}
	steps, stepTime, devices := int64(0), 0.0, map[string]bool{}
	m.steps.each(func(st *Step) {
		if w.has(st.Time) && st.Service == k.service && st.Job == k.job && st.Rank == k.rank &&
			st.Name == k.loop {
			steps++
			stepTime += st.Duration
			devices[st.Device] = true
		}
	})
	late := finding.Late{
		Rank: k.rank, Ranks: c.ranks, Hits: c.steps, Steps: steps, By: nanoseconds(c.seconds / float64(c.steps)),
		Each: nanoseconds(c.seconds), Of: nanoseconds(stepTime),
	}
	if len(jobs) > 1 {
		late.Job = k.job
	}
	if len(loops) > 1 {
		late.Loop = k.loop
	}
	section, inSection := largest(c.sections, func(_ string, v float64) float64 { return v })
	late.Section, late.In = section, nanoseconds(inSection/float64(c.steps))
	if other := m.neighbour(devices, k.service); other != "" {
		late.Did = other + " runs on its GPU, too"
	}
	f := finding.LateRank(&late, semconv.FindingLateRankLiveThreshold, finding.Medium)
	f.Trace, f.From, f.To = c.f.Trace, c.f.From, c.f.To
	if stepTime == 0 {
		f.Gain = 0 // it may be more than the time of the steps
	}
	return f, stepTime == 0 || f.Share >= f.Threshold
}

// nanoseconds converts seconds.
func nanoseconds(s float64) time.Duration { return time.Duration(math.Round(1e9 * s)) }

// neighbour returns another service that used one of the devices.
func (m *Model) neighbour(devices map[string]bool, service string) string {
	for _, id := range slices.Sorted(maps.Keys(devices)) {
		if d := m.devices[id]; d != nil {
			if i := slices.IndexFunc(d.services, func(s string) bool { return s != service }); i >= 0 {
				return d.services[i]
			}
		}
	}
	return ""
}

// slowRequest returns the request that is furthest above the median of its service.
func (m *Model) slowRequest(w *window) (finding.Finding, bool) {
	services := map[string][]*Request{}
	add := func(q *Request) {
		if q != nil && q.Duration > 0 && q.End >= w.from && q.Start <= w.to {
			services[q.Service] = append(services[q.Service], q)
		}
	}
	for _, q := range m.requests.All() {
		add(q)
	}
	add(m.slowest)
	var slow *Request
	times, median, count := float64(semconv.FindingSlowRequestThreshold), 0.0, 0
	for _, list := range services {
		slices.SortFunc(list, func(a, b *Request) int { return cmp.Compare(a.Duration, b.Duration) })
		n := len(list)
		if x := list[n-1]; n >= leastRequests && x.Duration >= times*list[n/2].Duration {
			slow, times, median, count = x, x.Duration/list[n/2].Duration, list[n/2].Duration, n
		}
	}
	if slow == nil {
		return finding.Finding{}, false
	}
	text := fmt.Sprintf("%s, the median of %d takes %s", short(slow.Duration), count, short(median))
	if slow.Energy > 0 {
		text += fmt.Sprintf("; it used %.1f J", slow.Energy)
	}
	f := found(semconv.GPUFindingKindSlowRequest, cmp.Or(slow.Service, "requests"), text, times, slow.Trace)
	f.From, f.To = slow.Start, slow.End
	return f, true
}

// leastThrottled is the throttled time, s, that is a finding whatever its share of all operations'
// time: a single slow request matters to its sender, however much else ran.
const leastThrottled = semconv.FindingThrottleLiveDuration

// throttled returns the operation during which the clock was throttled most often: concurrent
// operations have the reasons too. The throttled time must be at least the threshold's share of its
// own time, and at least leastThrottled or the live threshold's share of all operations' time.
func (m *Model) throttled(w *window) (finding.Finding, bool) {
	type held struct {
		*operation
		spansums.Sums
	}
	all := map[operationKey]*held{}
	least := min(semconv.FindingThrottleLiveThreshold*m.deviceTime(w), leastThrottled)
	for k, o := range m.operations {
		if b := o.between(w.first, w.last); b[spansums.Held] > 0 &&
			b[spansums.HeldTime] >= max(least, semconv.FindingThrottleThreshold*b[spansums.Time]) {
			all[k] = &held{o, b}
		}
	}
	k, x := largest(all, func(_ operationKey, x *held) float64 {
		return x.Ratio(spansums.Held, spansums.Count) + x.Sums[spansums.HeldTime]/1e9 // of equal ones the longer
	})
	if x == nil {
		return finding.Finding{}, false
	}
	spans := fmt.Sprintf("%.0f of %.0f spans of %s ran", x.Sums[spansums.Held], x.Sums[spansums.Count], k.name)
	if x.Sums[spansums.Count] == 1 {
		spans = fmt.Sprintf("the only span of %s ran", k.name)
	}
	text := fmt.Sprintf("%s with a throttled clock, %s of GPU time (%s)", spans, short(x.Sums[spansums.HeldTime]),
		x.throttle)
	f := found(semconv.GPUFindingKindThrottle, k.name, text, x.Ratio(spansums.HeldTime, spansums.Time), x.trace)
	inBuckets(&f, x.operation, w, spansums.Held)
	return f, true
}

// deviceTime sums the device time in seconds of all operations that are not steps: sections inside
// others count as well.
func (m *Model) deviceTime(w *window) (sum float64) {
	for k, o := range m.operations {
		if k.kind != semconv.GPUOperationTypeStep {
			b := o.between(w.first, w.last)
			sum += b[spansums.Time]
		}
	}
	return sum
}

// pageable returns the operation that moves most bytes from or to pageable memory, if all such
// copies take at least the live threshold's share of all operations' time.
func (m *Model) pageable(w *window) (finding.Finding, bool) {
	all := map[operationKey]*spansums.Sums{}
	copying := 0.0
	for k, o := range m.operations {
		if o.hostMemory == semconv.GPUCopyHostMemoryPageable {
			if b := o.between(w.first, w.last); b[spansums.ByteTime] > 0 {
				copying += b[spansums.Time]
				all[k] = &b
			}
		}
	}
	k, x := largest(all, func(_ operationKey, x *spansums.Sums) float64 { return x[spansums.Bytes] })
	share := copying / m.deviceTime(w)
	if x == nil || share < semconv.FindingPageableCopiesLiveThreshold {
		return finding.Finding{}, false
	}
	text := fmt.Sprintf("%s moves through pageable memory at %.1f GB/s", k.name,
		x.Ratio(spansums.Bytes, spansums.ByteTime)*1e-9)
	if x[spansums.RoofTime] > 0 {
		text += fmt.Sprintf(", %.0f %% of the bus", 100*x.Ratio(spansums.Roofline, spansums.RoofTime))
	}
	f := found(semconv.GPUFindingKindPageableCopies, k.name, text, share, m.operations[k].trace)
	f.Threshold = semconv.FindingPageableCopiesLiveThreshold
	inBuckets(&f, m.operations[k], w, spansums.ByteTime)
	return f, true
}

// largest returns the entry with the largest value.
func largest[K comparable, V any](m map[K]V, value func(K, V) float64) (key K, best V) {
	most, found := 0.0, false
	for k, v := range m {
		if x := value(k, v); !found || x > most {
			key, best, most, found = k, v, x, true
		}
	}
	return key, best
}

func short(seconds float64) string {
	return time.Duration(seconds * 1e9).Round(100 * time.Microsecond).String()
}
