// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/spansums"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of the parts of a State that a saved page needs to follow a selection.
const (
	shownPoints   = 400 // requests on the time axis
	shownHistory  = 100 // operations
	shownTraces   = 60
	shownInTraces = 6000 // spans of all traces together
)

// Bin is the total of bucketSeconds: what the headline sums over a selection.
type Bin struct {
	At       int64   `json:"at"`    // unix s
	Spans    int64   `json:"spans"` // GPU spans, steps included
	Energy   float64 `json:"energy,omitempty"`
	Requests int64   `json:"requests,omitempty"`
	Used     float64 `json:"used,omitempty"`    // energy of requests
	Metered  float64 `json:"metered,omitempty"` // energy of work whose items are known, of State.ItemType
	Items    float64 `json:"items,omitempty"`   // of this work
	GPUTime  float64 `json:"gpuTime,omitempty"` // of requests
}

// Point is a request on the time axis; End is in unix milliseconds.
type Point struct {
	End      float64 `json:"end"`
	Duration float64 `json:"duration"`
	Trace    string  `json:"trace"`
	Slow     bool    `json:"slow,omitempty"` // more than twice the median of its service
}

// Past is an operation's count, time, energy and own energy in one bin.
type Past struct {
	At     int64   `json:"at"` // unix s
	Count  int64   `json:"count"`
	Time   float64 `json:"time"`
	Total  float64 `json:"total,omitempty"`
	Energy float64 `json:"energy,omitempty"`
}

// bins collects totals by time.
type bins map[int64]*Bin

func (b bins) at(index int64) *Bin {
	x := b[index]
	if x == nil {
		x = &Bin{At: index * bucketSeconds}
		b[index] = x
	}
	return x
}

func (b bins) list() []Bin {
	out := make([]Bin, 0, len(b))
	for _, index := range slices.Sorted(maps.Keys(b)) {
		out = append(out, *b[index])
	}
	return out
}

// add counts a request, and joules per item only for one type of items.
func (x *Bin) add(q *Request, itemType string) {
	x.Requests++
	x.Used += q.Energy
	x.GPUTime += q.GPUTime
	if q.ItemType == itemType {
		x.Metered += q.metered
		x.Items += q.meteredItems
	}
}

// mainItem returns the type of items that used the most energy.
func mainItem(list []Request) string {
	energy := map[string]float64{}
	for i := range list {
		energy[list[i].ItemType] += list[i].metered
	}
	return slices.MaxFunc(append(slices.Sorted(maps.Keys(energy)), ""), func(a, b string) int {
		return cmp.Compare(energy[a], energy[b])
	})
}

// addTo adds the buckets from the first to the last index to the bins.
func (o *operation) addTo(total bins, first, last int64) {
	for i := range o.buckets {
		if b := &o.buckets[i]; b.index >= first && b.index <= last {
			x := total.at(b.index)
			x.Spans += int64(b.Sums[spansums.Count])
			x.Energy += b.Sums[spansums.SelfEnergy]
		}
	}
}

func (o *operation) past(first, last int64) (list []Past) {
	for i := range o.buckets {
		if b := &o.buckets[i]; b.index >= first && b.index <= last {
			list = append(list, Past{
				At: b.index * bucketSeconds, Count: int64(b.Sums[spansums.Count]), Time: b.Sums[spansums.Time],
				Total: b.Sums[spansums.Energy], Energy: b.Sums[spansums.SelfEnergy],
			})
		}
	}
	return list
}

// points returns at most shownPoints of the requests: the longest one of each piece of time.
func points(list []Request) []Point {
	from, to := 0.0, 0.0
	for i := range list {
		if i == 0 || list[i].End < from {
			from = list[i].End
		}
		to = max(to, list[i].End)
	}
	size := max(1, (to-from)/shownPoints)
	if size > 1 { // pieces that do not move with time
		grain := 1.0
		for grain < size {
			grain *= 2
		}
		size = grain
	}
	longest := map[int64]*Request{}
	for i := range list {
		q := &list[i]
		k := int64(q.End / size)
		if len(list) <= shownPoints {
			k = int64(i)
		}
		if x := longest[k]; q.Duration > 0 && (x == nil || q.Duration > x.Duration) {
			longest[k] = q
		}
	}
	middle := medians(list)
	out := make([]Point, 0, len(longest))
	for _, k := range slices.Sorted(maps.Keys(longest)) {
		q := longest[k]
		m := middle[q.Service]
		out = append(out, Point{q.End, q.Duration, q.Trace, m > 0 && q.Duration > semconv.FindingSlowRequestThreshold*m})
	}
	slices.SortStableFunc(out, func(a, b Point) int { return cmp.Compare(a.End, b.End) })
	return out
}

// medianRequest returns the median duration of requests that state one, 0 without: of an even
// number the upper one, as in findings and on the terminal.
func medianRequest(list []Request) float64 {
	var times []float64
	for i := range list {
		if list[i].Duration > 0 {
			times = append(times, list[i].Duration)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return rounded(times[len(times)/2])
}

// medians returns the medians of services with enough requests for one.
func medians(list []Request) map[string]float64 {
	services := map[string][]Request{}
	for i := range list {
		services[list[i].Service] = append(services[list[i].Service], list[i])
	}
	out := map[string]float64{}
	for service, list := range services {
		if len(list) >= leastRequests {
			out[service] = medianRequest(list)
		}
	}
	return out
}

// Before has the rates of as much time before a selection; unknown ones are omitted.
type Before struct {
	Seconds   float64  `json:"seconds"`
	Power     float64  `json:"power,omitempty"`     // W, of all devices
	Throttled *float64 `json:"throttled,omitempty"` // share of the time, mean of the devices
	PerItem   float64  `json:"perItem,omitempty"`   // J, of requests whose energy and items are known
	Loop      string   `json:"loop,omitempty"`      // with the most steps: service, name, job, rank
	StepRate  float64  `json:"stepRate,omitempty"`  // its steps per second
}

// before returns the rates before a query's time, nil if not all of that is kept.
func (m *Model) before(q Query, itemType string, wanted func(service string) bool) *Before {
	length := q.To.Sub(q.From)
	since := q.From.Add(-length)
	if since.Before(m.now().Add(-keptSeconds * time.Second)) {
		return nil
	}
	out := &Before{Seconds: length.Seconds()}
	from, to := float64(since.UnixMilli()), float64(q.From.UnixMilli())
	var total Bin
	for _, r := range m.requests.All() {
		if r.End >= from && r.End < to && wanted(r.Service) {
			total.add(r, itemType)
		}
	}
	out.PerItem = rounded(ratio(total.Metered, total.Items))
	var held mean
	for _, d := range m.devices {
		if d.sampled > since.Unix() { // the power of fewer devices is not comparable
			out.Power, held = 0, mean{}
			break
		}
		// One cell is the mean of the whole time.
		first, last := since.Unix(), q.From.Unix()-1
		if v := d.cells(power, first, last, last-first+1, 10)[0]; v != nil {
			out.Power += *v
		}
		if v := d.cells(throttled, first, last, last-first+1, 1000)[0]; v != nil {
			held.add(*v, true)
		}
	}
	out.Throttled = held.value(1000)
	m.loopBefore(out, from, to, wanted)
	return out
}

// loopBefore sets the rate of the loop that had the most steps from one time to another.
func (m *Model) loopBefore(out *Before, from, to float64, wanted func(service string) bool) {
	type loop struct {
		key         string
		steps       int
		first, last float64
	}
	loops, most := map[string]*loop{}, &loop{}
	m.steps.each(func(st *Step) {
		start := st.Time - 1000*st.Duration
		if st.Time < from || start > to || !wanted(st.Service) {
			return
		}
		key := fmt.Sprintf("%s\n%s\n%s\n%d", st.Service, st.Name, st.Job, st.Rank)
		l := loops[key]
		if l == nil {
			l = &loop{key: key, first: start}
			loops[key] = l
		}
		l.steps++
		l.first, l.last = min(l.first, start), max(l.last, st.Time)
		if l.steps > most.steps || l.steps == most.steps && l.key < most.key {
			most = l
		}
	})
	if most.last-most.first > 0.9*(to-from) {
		out.Loop, out.StepRate = most.key, rounded(1000*float64(most.steps)/(most.last-most.first))
	}
}
