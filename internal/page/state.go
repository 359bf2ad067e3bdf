// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/internal/profiletrace/jobs"
	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// Limits of one State: what a person can look at, and a browser can draw at once.
const (
	shownOperations = 500
	shownSteps      = 400 // of more, means are shown
	shownLongest    = 8
	shownRequests   = 200
	shownServices   = 500
	shownCells      = 300 // of a device's strip
	shownRecent     = 640 // newest spans of all devices together, 40 of one
)

// State is the content of the page: the JSON of /api/state, version 3. Times are unix milliseconds,
// durations seconds, energies joules, rates per second. Unknown values are omitted.
type State struct {
	Version    int               `json:"version"`
	Update     uint64            `json:"update,omitempty"` // number of this state, for ?have=
	Base       uint64            `json:"base,omitempty"`   // of an update: number of the state that it changes
	Now        int64             `json:"now"`
	Live       bool              `json:"live"`
	Range      float64           `json:"range"`              // seconds before now that the strips show; 0: all
	From       int64             `json:"from"`               // time range of operations, steps and requests; 0: all
	To         int64             `json:"to"`                 //
	Host       string            `json:"host,omitempty"`     // whose page it is
	TraceURL   string            `json:"traceUrl,omitempty"` // with {traceID}
	Services   []string          `json:"services,omitempty"` // in the range, whatever Query.Service is
	Findings   []finding.Finding `json:"findings"`
	Devices    []Device          `json:"devices"`
	Operations []Operation       `json:"operations"`
	MoreOps    int               `json:"moreOperations,omitempty"` // that are not listed, for they took the least GPU time
	Roofs      []Roof            `json:"roofs"`
	Steps      []Step            `json:"steps"`
	StepCount  int               `json:"stepCount,omitempty"`  // of the range, on all ranks
	StepsSince float64           `json:"stepsSince,omitempty"` // there were too many before
	Longest    []Step            `json:"longest,omitempty"`    // each step once, with its slowest rank
	Requests   []Request         `json:"requests"`
	Points     []Point           `json:"points"`                  // requests on the time axis, the longest of many
	ReqMedian  float64           `json:"requestMedian,omitempty"` // s, of all requests of the range
	ItemType   string            `json:"itemType,omitempty"`      // of the bins' items: the one that used the most energy
	Bins       []Bin             `json:"bins"`                    // totals by time
	Before     *Before           `json:"before,omitempty"`        // the time before From
	Traces     []*Trace          `json:"traces,omitempty"`        // of a saved page, in which a server cannot be asked
	MoreReqs   int               `json:"moreRequests,omitempty"`  // that took less
	Health     Health            `json:"health"`
	Goodput    []JobTime         `json:"goodput,omitempty"` // of each job since it began

	// Contradictions between device values and other evidence.
	Contradictions []plausibility.Entry `json:"contradictions,omitempty"`

	// Of reports on profiles.
	Profiles   []*Profile  `json:"profiles,omitempty"`
	Names      []string    `json:"names,omitempty"`      // of activities in the timelines of all profiles
	Jobs       []jobs.Job  `json:"jobs,omitempty"`       // of several ranks each
	Comparison *Comparison `json:"comparison,omitempty"` // what changed from one profile to another
	// GPU time and idle time by stack; the second is from the first profile of a comparison.
	Flames       *stackprofile.Graph `json:"flames,omitempty"`
	FlamesBefore *stackprofile.Graph `json:"flamesBefore,omitempty"`
}

// Device is one device's strip: a list of cells of Step seconds from Start on. null is unknown.
type Device struct {
	ID          string     `json:"id"`
	Name        string     `json:"name,omitempty"`
	Model       string     `json:"model,omitempty"`
	Start       int64      `json:"start"` // unix s
	Step        int64      `json:"step"`
	Covered     []*float64 `json:"covered"`           // share of the cell in which a span ran, 0 to 1
	Busy        []*float64 `json:"busy"`              // as the device reports it, 0 to 1
	Power       []*float64 `json:"power"`             // W
	Temperature []*float64 `json:"temperature"`       // degrees Celsius
	Metered     bool       `json:"metered,omitempty"` // power is from the energy counter
	Throttled   []*float64 `json:"throttled"`         // share of the cell, 0 to 1
	Memory      []*float64 `json:"memory"`            // MiB in use
	Limit       float64    `json:"limit,omitempty"`   // total MiB
	Recent      []Recent   `json:"recent"`            // oldest first
}

// Recent is a recent span on a device; Start and End are unix milliseconds.
type Recent struct {
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Name  string  `json:"name"`
	Trace string  `json:"trace"`
}

// Operation is one operation of one service in the range.
type Operation struct {
	Service   string  `json:"service,omitempty"`
	Name      string  `json:"name"`
	Type      string  `json:"type"`
	Inside    string  `json:"inside,omitempty"` // operation that contains it most often: service, name, type
	Past      []Past  `json:"past,omitempty"`   // of a saved page
	Category  string  `json:"category,omitempty"`
	Memory    string  `json:"memory,omitempty"` // of the host, of a copy: pageable, pinned or managed
	Held      int64   `json:"held,omitempty"`   // runs during which the clock was throttled
	Precision string  `json:"precision,omitempty"`
	Model     string  `json:"model,omitempty"`
	Count     int64   `json:"count"`
	Time      float64 `json:"time"`
	Total     float64 `json:"total,omitempty"`  // energy, with the operations inside it
	Energy    float64 `json:"energy,omitempty"` // own
	Items     float64 `json:"items,omitempty"`
	ItemType  string  `json:"itemType,omitempty"`
	FLOPRate  float64 `json:"flopRate,omitempty"`
	ByteRate  float64 `json:"byteRate,omitempty"`
	Intensity float64 `json:"intensity,omitempty"` // FLOPs per byte
	Roofline  float64 `json:"roofline,omitempty"`  // 0..1, weighted by time
	Bound     string  `json:"bound,omitempty"`     // the most frequent one
	Trace     string  `json:"trace,omitempty"`     // of the longest run
}

// Roof is the upper limit of a device model.
type Roof struct {
	Model     string             `json:"model"`
	Bandwidth float64            `json:"bandwidth"` // bytes/s
	FLOPs     map[string]float64 `json:"flops"`     // by precision
}

// Step is one step of a loop on one rank, or the mean of Count steps.
type Step struct {
	Time     float64 `json:"t"` // its end
	Name     string  `json:"name"`
	Service  string  `json:"service,omitempty"`
	Job      string  `json:"job,omitempty"`
	Start    float64 `json:"start,omitempty"` // of the first of several
	Index    int64   `json:"index"`           // the first of several
	Count    int     `json:"count,omitempty"` // of steps in a mean
	Worst    float64 `json:"worst,omitempty"` // the longest of a mean
	Rank     int64   `json:"rank"`            // -1: not stated
	Device   string  `json:"device,omitempty"`
	Duration float64 `json:"duration"`
	Phases   []Phase `json:"phases,omitempty"`
	Exposed  float64 `json:"exposed,omitempty"`
	Other    float64 `json:"other,omitempty"`
	Overlap  float64 `json:"overlap,omitempty"`
	Items    float64 `json:"items,omitempty"`
	ItemType string  `json:"itemType,omitempty"`
	MFU      float64 `json:"mfu,omitempty"`
	Energy   float64 `json:"energy,omitempty"`
	Trace    string  `json:"trace"` // of the longest of a mean
	Span     string  `json:"span"`
	// Own time (without exposed communication) over the median of the ranks: mean and maximum.
	Late      float64 `json:"late,omitempty"`
	WorstLate float64 `json:"worstLate,omitempty"`
}

// Phase is a named length.
type Phase struct {
	Name     string  `json:"name"`
	Duration float64 `json:"duration"`
}

// Request is the usage record of one request.
type Request struct {
	Trace    string  `json:"trace"`
	Service  string  `json:"service,omitempty"`
	Model    string  `json:"model,omitempty"`
	Start    float64 `json:"start"`
	End      float64 `json:"end"`
	Duration float64 `json:"duration,omitempty"` // as its server saw it
	GPUTime  float64 `json:"gpuTime"`
	Energy   float64 `json:"energy,omitempty"`
	Items    float64 `json:"items,omitempty"`
	ItemType string  `json:"itemType,omitempty"`
	// joules per item, of the spans with both
	ItemEnergy float64 `json:"itemEnergy,omitempty"`
	Queue      float64 `json:"queue,omitempty"`
	FirstItem  float64 `json:"firstItem,omitempty"`
	Parts      []Phase `json:"parts,omitempty"`

	shared                bool // batches count its items
	joined                mean // of its time that has samples
	metered, meteredItems float64
}

// Health counts what has arrived, and what was dropped because of limits.
type Health struct {
	Spans             int64   `json:"spans"`
	GPUSpans          int64   `json:"gpuSpans"`
	Steps             int64   `json:"steps"`
	Requests          int64   `json:"requests"`
	LastSpan          int64   `json:"lastSpan,omitempty"`        // unix ms
	LastMetric        int64   `json:"lastMetric,omitempty"`      // unix ms
	Coverage          float64 `json:"coverage,omitempty"`        // mean gpu.join.coverage in the range
	OperationsSince   int64   `json:"operationsSince,omitempty"` // unix s: there were too many for ten minutes
	FutureDropped     int64   `json:"futureDropped,omitempty"`   // spans and points from the future
	OperationsDropped int64   `json:"operationsDropped,omitempty"`
	DevicesDropped    int64   `json:"devicesDropped,omitempty"`
	RequestsDropped   int64   `json:"requestsDropped,omitempty"`
	ProfilesDropped   int     `json:"profilesDropped,omitempty"`
	StacksMerged      int64   `json:"stacksMerged,omitempty"` // values that are below "(other stacks)"
}

// Query selects the content of a State.
type Query struct {
	Range    time.Duration // before now; 0 or more than ten minutes means everything
	From, To time.Time     // time range of operations, steps and requests; zero: of Range
	Service  string        // of the operations, steps and requests; empty: all services
	Saved    bool          // with what a page without a server needs to follow a selection and to show traces
}

// State returns what the model holds for a query.
func (m *Model) State(q Query) *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	span := q.Range
	if span <= 0 || span > keptSeconds*time.Second {
		span = keptSeconds * time.Second
	}
	if q.From.IsZero() || !q.To.After(q.From) {
		q.From, q.To = now.Add(-span), now
	}
	s := &State{
		Version: 3, Now: now.UnixMilli(), Live: true, Range: span.Seconds(), From: q.From.UnixMilli(),
		To:     q.To.UnixMilli(),
		Health: m.health, Findings: []finding.Finding{}, Devices: []Device{}, Operations: []Operation{}, Roofs: []Roof{},
		Steps:    []Step{},
		Requests: []Request{},
	}
	from, to := float64(s.From), float64(s.To)
	first, last := q.From.Unix()/bucketSeconds, q.To.Unix()/bucketSeconds
	services := map[string]bool{}
	// wanted adds a service to services and reports whether the query includes it.
	wanted := func(service string) bool {
		if service != "" {
			services[service] = true
		}
		return q.Service == "" || service == q.Service
	}
	m.learnParents()
	total := bins{}
	joined := m.operationsOf(s, &q, first, last, total, wanted)
	m.devicesOf(s, now.Unix(), int64(span.Seconds()))
	m.findingsOf(s, &window{from, to, first, last})
	for _, entries := range m.sources {
		s.Contradictions = append(s.Contradictions, entries()...)
	}
	s.Goodput = m.jobsOf(now.Unix())
	m.stepsOf(s, from, to, total, wanted)
	for _, q := range m.requests.All() {
		if q.End >= from && q.Start <= to && wanted(q.Service) {
			joined.sum, joined.count = joined.sum+q.joined.sum, joined.count+q.joined.count
			r := *q
			r.Parts, r.ItemEnergy = slices.Clone(q.Parts), ratio(q.metered, q.meteredItems)
			s.Requests = append(s.Requests, r)
		}
	}
	s.ItemType = mainItem(s.Requests)
	for i := range s.Requests {
		total.at(int64(s.Requests[i].End/1000)/bucketSeconds).add(&s.Requests[i], s.ItemType)
	}
	s.Before = m.before(q, s.ItemType, wanted)
	s.Health.Coverage = ratio(joined.sum, joined.count)
	slices.SortFunc(s.Requests, func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Energy, a.Energy), cmp.Compare(b.GPUTime, a.GPUTime), cmp.Compare(a.Trace, b.Trace))
	})
	s.Points, s.ReqMedian, s.Bins = points(s.Requests), medianRequest(s.Requests), total.list()
	s.Requests, s.MoreReqs = most(s.Requests, shownRequests)
	for i := range s.Requests {
		q := &s.Requests[i]
		for _, v := range []*float64{&q.Duration, &q.GPUTime, &q.Energy, &q.ItemEnergy, &q.Queue, &q.FirstItem} {
			*v = rounded(*v)
		}
		roundPhases(q.Parts)
	}
	ids := m.traces.pin(s)
	if q.Saved {
		s.Live, s.Traces = false, m.traces.saved(ids)
	}
	s.Services, _ = most(slices.Sorted(maps.Keys(services)), shownServices)
	return s
}

// Generation changes whenever data arrives.
func (m *Model) Generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

// operationsOf sums the buckets from the first to the last index, and how much of the spans' time
// has samples.
func (m *Model) operationsOf(s *State, q *Query, first, last int64, total bins,
	wanted func(service string) bool,
) (joined mean) {
	models := map[string]bool{}
	for k, o := range m.operations {
		sum := o.between(first, last)
		if sum[spansums.Count] == 0 || !wanted(k.service) {
			continue
		}
		o.addTo(total, first, last)
		joined.sum, joined.count = joined.sum+sum[spansums.Coverage], joined.count+sum[spansums.Joined]
		op := Operation{
			Service: k.service, Name: k.name, Type: k.kind, Category: o.category, Precision: o.precision, Model: o.model,
			Memory: o.hostMemory, Held: int64(sum[spansums.Held]), Count: int64(sum[spansums.Count]),
			Time: sum[spansums.Time], Total: sum[spansums.Energy], Energy: sum[spansums.SelfEnergy],
			Items: sum[spansums.Items], ItemType: o.itemType,
			FLOPRate: sum.Ratio(spansums.FLOPs, spansums.FLOPTime), ByteRate: sum.Ratio(spansums.Bytes, spansums.ByteTime),
			Roofline: sum.Ratio(spansums.Roofline, spansums.RoofTime), Bound: sum.Bound(), Trace: o.trace,
		}
		if o.direction == "" { // the bytes of a copy are not traffic of the device's memory
			op.Intensity = sum.Ratio(spansums.BothFLOPs, spansums.BothBytes)
		}
		models[o.model] = true
		if o.parent.name != "" {
			op.Inside = o.parent.String()
		}
		s.Operations = append(s.Operations, op)
	}
	slices.SortFunc(s.Operations, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Type, b.Type))
	})
	s.Operations, s.MoreOps = most(s.Operations, shownOperations)
	for i := range s.Operations[:min(len(s.Operations), shownHistory)] {
		if op := &s.Operations[i]; q.Saved {
			op.Past = m.operations[operationKey{op.Service, op.Name, op.Type}].past(first, last)
		}
	}
	for model, r := range m.roofs {
		if models[model] && r.Bandwidth > 0 && len(r.FLOPs) > 0 {
			delete(models, model)
			s.Roofs = append(s.Roofs, Roof{Model: model, Bandwidth: r.Bandwidth, FLOPs: maps.Clone(r.FLOPs)})
		}
	}
	for model := range models {
		if d, ok := peaks.Lookup(model); ok {
			if r, ok := roofOf(model, d); ok {
				s.Roofs = append(s.Roofs, r)
			}
		}
	}
	slices.SortFunc(s.Roofs, func(a, b Roof) int { return cmp.Compare(a.Model, b.Model) })
	return joined
}

// roofOf returns the roof of a row of the table of peaks.
func roofOf(model string, d peaks.Device) (Roof, bool) {
	if d.MemoryBandwidth <= 0 {
		return Roof{}, false
	}
	r := Roof{Model: model, Bandwidth: d.MemoryBandwidth, FLOPs: map[string]float64{}}
	for _, p := range peaks.Precisions() {
		if f := d.FLOPs.Of(p); f > 0 {
			r.FLOPs[p] = f
		}
	}
	return r, true
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// rounded returns a number with six significant digits, as many as a page can show. Shorter numbers
// are a third of a state.
func rounded(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(v))))
	if r := math.Round(v*scale) / scale; !math.IsInf(scale, 0) && !math.IsNaN(r) {
		return r
	}
	return v
}

func roundPhases(list []Phase) {
	for i := range list {
		list[i].Duration = rounded(list[i].Duration)
	}
}

// mean returns the mean of the known values.
type mean struct{ sum, count float64 }

func (m *mean) add(v float64, known bool) {
	if known {
		m.sum += v
		m.count++
	}
}

// value returns the mean, rounded to 1/parts, and nil if nothing is known.
func (m *mean) value(parts float64) *float64 {
	v := math.Round(m.sum/m.count*parts) / parts
	if m.count == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
