// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpugoodputconnector

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpugoodputconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/goodput"
	"github.com/otelgpu/otelgpu/internal/jobspans"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// job is a job with the time of its newest batch, or of the newest use of its devices.
type job struct {
	goodput.Job
	seen  time.Time
	spans bool  // it has sent some
	floor int64 // unix ns: what its devices did before belongs to another job
}

// gpuGoodput is the connector.
type gpuGoodput struct {
	sharedcomponent.Connector
	cfg      *Config
	tel      *metadata.TelemetryBuilder
	instance string
	rules    []rule

	reader devicesamples.Reader // nil: none
	newest *jobspans.Newest     // nil: none

	mu      sync.Mutex
	jobs    map[string]*job
	aliases map[string]string // the job with spans by the identity that its devices have without them

	// Memory that each output uses again.
	values  []devicesamples.TimedValue
	uses    []devicesamples.TimedUse
	windows []devicesamples.ShareWindow
}

// rule states the bucket of spans.
type rule struct {
	pattern string
	bucket  goodput.Bucket
}

func newConnector(cfg *Config, set connector.Settings, next consumer.Metrics) (*gpuGoodput, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &gpuGoodput{
		cfg: cfg, tel: tel, instance: sharedcomponent.InstanceID("", set),
		jobs: map[string]*job{}, aliases: map[string]string{},
	}
	c.Metrics.Next = next
	for _, s := range slices.Concat(cfg.Spans, builtin) {
		c.rules = append(c.rules, rule{s.Name, goodput.Bucket(slices.Index(goodput.Names[:], s.Bucket))})
	}
	return c, nil
}

// Start begins the output at intervals.
func (c *gpuGoodput) Start(_ context.Context, host component.Host) error {
	if c.cfg.Samples != nil {
		reader, err := devicesamples.FindReader(host, *c.cfg.Samples)
		if err != nil {
			return err
		}
		c.reader = reader
		if s, ok := reader.(jobspans.Source); ok {
			c.newest = s.JobSpans()
		}
	}
	c.Begin(func() {}, func(ctx context.Context) {
		tick := time.NewTicker(c.cfg.FlushInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				c.flush(ctx, now, false)
			}
		}
	})
	return nil
}

// Shutdown writes the accounts once more.
func (c *gpuGoodput) Shutdown(ctx context.Context) error {
	return c.End(ctx, func() {
		c.flush(ctx, time.Now(), true)
		c.tel.Shutdown()
	})
}

// attemptKeys are the attributes of a resource that distinguish the attempts of a job.
var attemptKeys = []string{
	string(semconv.ServiceInstanceIDKey), "process.pid", "nv.dl.run.uuid", "nemo.lens.run_uuid",
	"nv.nvrx.cycle.index", "nvrx.cycle",
}

// ConsumeTraces adds the spans of a batch to the accounts of their jobs. It never fails.
func (c *gpuGoodput) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	var res spanfacts.Resource
	var scope spanfacts.Scope
	var f spanfacts.Facts
	var taken, noJob, maxJobs, maxRanks int64
	for _, rs := range td.ResourceSpans().All() {
		attrs := rs.Resource().Attributes()
		res.Load(attrs)
		var attempt strings.Builder
		for _, key := range attemptKeys {
			if v, ok := attrs.Get(key); ok {
				attempt.WriteString(spanfacts.Clip(v.AsString()) + " ")
			}
		}
		var last jobspans.Span
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(&res, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				if end := int64(s.EndTimestamp()); end > last.End {
					last = jobspans.Span{Trace: s.TraceID(), ID: s.SpanID(), End: end}
				}
				gpu := f.Load(s, &scope)
				if res.Rank < 0 && res.WorldSize > 1 {
					continue // a launcher or a server of the job has no device
				}
				span, ok := c.span(s, &f, gpu)
				if !ok {
					continue
				}
				taken++
				j := c.jobs[res.JobID]
				switch {
				case res.JobID == "":
					noJob++
					continue
				case j == nil && len(c.jobs) >= c.cfg.MaxJobs:
					maxJobs++
					continue
				case j == nil:
					j = &job{}
					c.jobs[strings.Clone(res.JobID)] = j
				}
				j.seen, j.spans = now, true
				j.World = max(j.World, min(res.WorldSize, goodput.MaxRanks))
				span.Rank, span.Attempt = max(0, res.Rank), attempt.String()
				if !j.Add(span) {
					maxRanks++
				}
			}
		}
		if res.JobID == "" || res.Rank < 0 && res.WorldSize > 1 {
			continue
		}
		rank := max(0, res.Rank)
		if j := c.jobs[res.JobID]; j != nil {
			j.Alive(rank, last.End)
			id := res.Device.ID
			if id != "" && len(id) < maxDeviceID {
				j.On(rank, devicesamples.NormalizeID(id))
			}
		}
		if c.newest != nil && last.End > 0 {
			c.newest.Add(res.JobID, rank, res.WorldSize, last)
		}
	}
	c.tel.ConnectorGpuGoodputSpans.Add(ctx, taken)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuGoodputDropped, noJob, sharedcomponent.Label("reason", "no_job"))
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuGoodputDropped, maxJobs, sharedcomponent.Label("reason", "max_jobs"))
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuGoodputDropped, maxRanks, sharedcomponent.Label("reason", "max_ranks"))
	return nil
}

// maxDeviceID is the length from which on hw.id is a list, whose devices are not read.
const maxDeviceID = 64

// span returns what a span is for the account, if it belongs to a bucket.
func (c *gpuGoodput) span(s ptrace.Span, f *spanfacts.Facts, gpu bool) (goodput.Span, bool) {
	out := goodput.Span{Start: int64(s.StartTimestamp()), End: int64(s.EndTimestamp())}
	name, operation := s.Name(), ""
	if v, ok := s.Attributes().Get(string(semconv.GPUOperationNameKey)); ok {
		operation = v.Str()
	}
	for _, r := range c.rules {
		if spanfacts.Matches(r.pattern, name) || operation != "" && spanfacts.Matches(r.pattern, operation) {
			out.Bucket = r.bucket
			return out, true
		}
	}
	if !gpu || f.Kind != spanfacts.Step {
		return out, false
	}
	out.Bucket = goodput.Productive
	if out.Step = f.HasStepIndex; out.Step {
		out.Index = f.StepIndex
		for _, p := range f.Phases() {
			if p.Name == semconv.GPUStepPhaseNameData {
				out.Data = int64(1e9 * p.Duration)
			}
			if p.Name == semconv.GPUStepPhaseNameOptimizer && f.HostTimed() && !f.HasExposed {
				// Before it updates the weights, the host waits for the device, and so for the
				// other ranks.
				out.Sync += int64(1e9 * p.Duration)
			}
		}
		out.Sync += int64(1e9 * max(0, f.Exposed()))
	}
	return out, true
}

func (c *gpuGoodput) flush(ctx context.Context, now time.Time, final bool) {
	md := c.points(now)
	n := md.DataPointCount()
	if n == 0 {
		return
	}
	if _, err := c.Metrics.Flush(ctx, md, false, final); err != nil {
		c.tel.ConnectorGpuGoodputDropped.Add(ctx, int64(n), sharedcomponent.Label("reason", "metrics"))
	}
}

// points returns the accounts of all jobs, and forgets inactive jobs.
func (c *gpuGoodput) points(now time.Time) pmetric.Metrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	md := pmetric.NewMetrics()
	if c.reader != nil {
		c.devices(now)
	}
	maps.DeleteFunc(c.jobs, func(_ string, j *job) bool { return now.Sub(j.seen) > c.cfg.Expiry })
	maps.DeleteFunc(c.aliases, func(_, id string) bool { return c.jobs[id] == nil })
	if len(c.jobs) == 0 {
		return md
	}
	rm := md.ResourceMetrics().AppendEmpty()
	rm.SetSchemaUrl(semconv.SchemaURL)
	sm := rm.ScopeMetrics().AppendEmpty()
	sm.Scope().SetName(metadata.ScopeName)
	metric := func(name string) pmetric.NumberDataPointSlice {
		m := sm.Metrics().AppendEmpty()
		registered, _ := semconv.LookupMetric(name)
		m.SetName(name)
		m.SetUnit(registered.Unit)
		m.SetDescription(registered.Description())
		m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		return m.Sum().DataPoints()
	}
	times, restarts := metric(semconv.GPUJobTimeName), metric(semconv.GPUJobRestartsName)
	for _, id := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[id]
		point := func(points pmetric.NumberDataPointSlice) pmetric.NumberDataPoint {
			p := points.AppendEmpty()
			p.SetStartTimestamp(pcommon.Timestamp(j.Start))
			p.SetTimestamp(pcommon.NewTimestampFromTime(now))
			p.Attributes().PutStr(string(semconv.GPUJobIDKey), id)
			p.Attributes().PutStr(string(semconv.CollectorInstanceIDKey), c.instance)
			return p
		}
		seconds, again := j.Account()
		for b, v := range seconds {
			if b := goodput.Bucket(b); !j.spans && b != goodput.Busy && b != goodput.Idle && b != goodput.Unknown {
				continue // only spans can tell
			}
			p := point(times)
			p.Attributes().PutStr(string(semconv.GPUJobTimeBucketKey), goodput.Names[b])
			p.SetDoubleValue(v)
		}
		if j.spans {
			point(restarts).SetIntValue(int64(again))
		}
	}
	return md
}
