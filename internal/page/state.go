// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
)

// How much one State holds: what a person can look at, and a browser draw at once.
const (
	shownOperations = 500
	shownSteps      = 400
	shownRequests   = 200
	shownStrip      = 300 // seconds
)

// State is what the page shows: the JSON of /api/state, version 1. Times are unix milliseconds, durations seconds, energies
// joules, rates per second. What is not known is absent.
type State struct {
	Version    int         `json:"version"`
	Now        int64       `json:"now"`
	Live       bool        `json:"live"`
	Range      float64     `json:"range"`              // seconds before now that operations, steps and requests are of; 0: all
	TraceURL   string      `json:"traceUrl,omitempty"` // with {traceID}
	Devices    []Device    `json:"devices"`
	Operations []Operation `json:"operations"`
	MoreOps    int         `json:"moreOperations,omitempty"` // that are not listed, for they took the least GPU time
	Roofs      []Roof      `json:"roofs"`
	Steps      []Step      `json:"steps"`
	Requests   []Request   `json:"requests"`
	Findings   []string    `json:"findings,omitempty"` // of a report: verdicts, the most important first
	Health     Health      `json:"health"`
}

// Device is one device's strip.
type Device struct {
	ID      string   `json:"id"`
	Name    string   `json:"name,omitempty"`
	Model   string   `json:"model,omitempty"`
	Seconds []Second `json:"seconds"`
	Recent  []Recent `json:"recent"`
}

// Second is one second of a device.
type Second struct {
	Time        int64    `json:"t"` // unix s
	Covered     float64  `json:"covered"`
	Busy        *float64 `json:"busy,omitempty"`
	Power       *float64 `json:"power,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"`
	Throttled   bool     `json:"throttled,omitempty"`
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
	Category  string  `json:"category,omitempty"`
	Precision string  `json:"precision,omitempty"`
	Model     string  `json:"model,omitempty"`
	Count     int64   `json:"count"`
	Time      float64 `json:"time"`
	Energy    float64 `json:"energy,omitempty"`
	Items     float64 `json:"items,omitempty"`
	ItemType  string  `json:"itemType,omitempty"`
	FLOPRate  float64 `json:"flopRate,omitempty"`
	ByteRate  float64 `json:"byteRate,omitempty"`
	Intensity float64 `json:"intensity,omitempty"` // FLOPs per byte
	Roofline  float64 `json:"roofline,omitempty"`  // 0..1, weighted by time
	Bound     string  `json:"bound,omitempty"`     // that of most of the time
	Trace     string  `json:"trace,omitempty"`     // of the longest run
}

// Roof is what a device model can do at most.
type Roof struct {
	Model     string             `json:"model"`
	Bandwidth float64            `json:"bandwidth"` // bytes/s
	FLOPs     map[string]float64 `json:"flops"`     // by precision
}

// Step is one step of a loop.
type Step struct {
	Time     float64 `json:"t"` // its end
	Name     string  `json:"name"`
	Service  string  `json:"service,omitempty"`
	Index    int64   `json:"index"`
	Rank     int64   `json:"rank"` // -1: not stated
	Duration float64 `json:"duration"`
	Phases   []Phase `json:"phases,omitempty"`
	Exposed  float64 `json:"exposed,omitempty"`
	Other    float64 `json:"other,omitempty"`
	Overlap  float64 `json:"overlap,omitempty"`
	Items    float64 `json:"items,omitempty"`
	ItemType string  `json:"itemType,omitempty"`
	MFU      float64 `json:"mfu,omitempty"`
	Energy   float64 `json:"energy,omitempty"`
	Trace    string  `json:"trace"`
	Span     string  `json:"span"`
}

// Phase is a named length.
type Phase struct {
	Name     string  `json:"name"`
	Duration float64 `json:"duration"`
}

// Request is the account of one request.
type Request struct {
	Trace     string  `json:"trace"`
	Service   string  `json:"service,omitempty"`
	Model     string  `json:"model,omitempty"`
	Start     float64 `json:"start"`
	End       float64 `json:"end"`
	GPUTime   float64 `json:"gpuTime"`
	Energy    float64 `json:"energy,omitempty"`
	Items     float64 `json:"items,omitempty"`
	ItemType  string  `json:"itemType,omitempty"`
	Queue     float64 `json:"queue,omitempty"`
	FirstItem float64 `json:"firstItem,omitempty"`
	Parts     []Phase `json:"parts,omitempty"`
}

// Health is what has come, and what was left out for want of room.
type Health struct {
	Spans             int64   `json:"spans"`
	GPUSpans          int64   `json:"gpuSpans"`
	Steps             int64   `json:"steps"`
	Requests          int64   `json:"requests"`
	LastSpan          int64   `json:"lastSpan,omitempty"`   // unix ms
	LastMetric        int64   `json:"lastMetric,omitempty"` // unix ms
	Coverage          float64 `json:"coverage,omitempty"`   // mean gpu.join.coverage in the range
	OperationsDropped int64   `json:"operationsDropped,omitempty"`
	DevicesDropped    int64   `json:"devicesDropped,omitempty"`
	RequestsDropped   int64   `json:"requestsDropped,omitempty"`
}

// State is the model's state over the last so long; 0 or more than ten minutes is all there is.
func (m *Model) State(span time.Duration) *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if span <= 0 || span > bucketCount*bucketLength {
		span = bucketCount * bucketLength
	}
	s := &State{
		Version: 1, Now: now.UnixMilli(), Live: !m.fixed, Range: span.Seconds(), Health: m.health,
		Devices: []Device{}, Operations: []Operation{}, Roofs: []Roof{}, Steps: []Step{}, Requests: []Request{},
	}
	since := float64(now.Add(-span).UnixMilli())
	if m.fixed {
		s.Range, since = 0, 0
	}
	m.operationsOf(s, now.Unix(), int64(span/bucketLength))
	m.devicesOf(s, now.Unix())
	m.steps.each(func(st *Step) {
		if st.Time >= since {
			s.Steps = append(s.Steps, *st)
		}
	})
	slices.SortStableFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.Time, b.Time) })
	s.Steps = s.Steps[max(0, len(s.Steps)-shownSteps):]
	for _, q := range m.requests {
		if q.End >= since {
			r := *q
			r.Parts = slices.Clone(q.Parts)
			s.Requests = append(s.Requests, r)
		}
	}
	slices.SortFunc(s.Requests, func(a, b Request) int {
		return cmp.Or(cmp.Compare(b.Energy, a.Energy), cmp.Compare(b.GPUTime, a.GPUTime), cmp.Compare(a.Trace, b.Trace))
	})
	s.Requests = s.Requests[:min(len(s.Requests), shownRequests)]
	return s
}

// Generation changes whenever something has come.
func (m *Model) Generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation
}

func (m *Model) operationsOf(s *State, now, buckets int64) {
	var coverage, covered float64
	models := map[string]bool{}
	for k, o := range m.operations {
		sum := o.total
		for i := range o.buckets {
			if b := &o.buckets[i]; b.count > 0 && b.index > now/10-buckets {
				sum.add(b)
			}
		}
		if sum.count == 0 {
			continue
		}
		coverage, covered = coverage+sum.coverage, covered+sum.coverCount
		op := Operation{
			Service: k.service, Name: k.name, Type: k.kind, Category: o.category, Precision: o.precision, Model: o.model, Count: sum.count,
			Time: sum.time, Energy: sum.energy, Items: sum.items, ItemType: o.itemType, FLOPRate: ratio(sum.flops, sum.flopTime),
			ByteRate: ratio(sum.bytes, sum.byteTime), Roofline: ratio(sum.use, sum.useTime), Trace: o.trace,
		}
		if o.direction == "" { // the bytes of a copy are no traffic of the device's memory
			op.Intensity = ratio(sum.bothFlops, sum.both)
		}
		most := 0.0
		for i, t := range sum.bounds {
			if t > most {
				most, op.Bound = t, boundNames[i]
			}
		}
		models[o.model] = true
		s.Operations = append(s.Operations, op)
	}
	s.Health.Coverage = ratio(coverage, covered)
	slices.SortFunc(s.Operations, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Type, b.Type))
	})
	if n := len(s.Operations); n > shownOperations {
		s.MoreOps, s.Operations = n-shownOperations, s.Operations[:shownOperations]
	}
	for model, r := range m.roofs {
		if models[model] && r.Bandwidth > 0 && len(r.FLOPs) > 0 {
			delete(models, model)
			s.Roofs = append(s.Roofs, Roof{Model: model, Bandwidth: r.Bandwidth, FLOPs: maps.Clone(r.FLOPs)})
		}
	}
	for model := range models {
		d, ok := peaks.Lookup(model)
		if !ok || d.MemoryBandwidth <= 0 {
			continue
		}
		r := Roof{Model: model, Bandwidth: d.MemoryBandwidth, FLOPs: map[string]float64{}}
		for _, p := range peaks.Precisions() {
			if f := d.FLOPs.Of(p); f > 0 {
				r.FLOPs[p] = f
			}
		}
		s.Roofs = append(s.Roofs, r)
	}
	slices.SortFunc(s.Roofs, func(a, b Roof) int { return cmp.Compare(a.Model, b.Model) })
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

func (m *Model) devicesOf(s *State, now int64) {
	for _, d := range m.devices {
		newest := now
		if m.fixed {
			newest = d.last
		}
		out := Device{ID: d.id, Name: d.name, Model: d.model, Seconds: []Second{}, Recent: []Recent{}}
		for at := newest - shownStrip + 1; at <= newest; at++ {
			c, p := &d.covered[at%stripSeconds], &d.samples[at%stripSeconds]
			sec := Second{Time: at}
			if c.at == at {
				sec.Covered = c.share()
			}
			if p.at == at {
				sec.Busy, sec.Power, sec.Temperature = optional(p.busy, p.hasBusy), optional(p.power, p.hasPower), optional(p.temperature, p.hasTemperature)
				sec.Throttled = p.throttled
			}
			if c.at == at || p.at == at {
				out.Seconds = append(out.Seconds, sec)
			}
		}
		d.recent.each(func(r *Recent) { out.Recent = append(out.Recent, *r) })
		s.Devices = append(s.Devices, out)
	}
	slices.SortFunc(s.Devices, func(a, b Device) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
}

func optional(v float64, has bool) *float64 {
	if !has {
		return nil
	}
	return &v
}
