// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// deviceKey identifies a device of a process.
type deviceKey struct {
	id       string
	bdf      string // if there is no ID
	ordinal  int64
	sections bool // time of sections, not a profiler's records
}

// sectionStates are the names of the states of a device by its sections, which are one class.
var sectionStates = [stateStarved + 1]string{
	0: semconv.GPUSectionStateGap, classCompute: semconv.GPUSectionStateCovered,
	stateStarved: semconv.GPUSectionStateStarved,
}

// activityStates are the names of the states of a device, by the class bits that run at one time; 0
// is idle or starved.
var activityStates = [stateStarved + 1]string{
	0:                                    semconv.GPUActivityStateIdle,
	classCompute:                         semconv.GPUActivityStateCompute,
	classComm:                            semconv.GPUActivityStateCommunication,
	classCopy:                            semconv.GPUActivityStateCopy,
	classCompute | classComm:             semconv.GPUActivityStateComputeCommunication,
	classCompute | classCopy:             semconv.GPUActivityStateComputeCopy,
	classComm | classCopy:                semconv.GPUActivityStateCommunicationCopy,
	classCompute | classComm | classCopy: semconv.GPUActivityStateComputeCommunicationCopy,
	stateStarved:                         semconv.GPUActivityStateStarved,
}

// activity adds a profiler's record, or a section that was timed on the device, to the device's
// timeline. It skips a sampled span that represents others, because the time between it and the
// next span is unknown.
func (a *aggregator) activity(r *resource, f *facts, weight float64, now int64) {
	cfg := a.cfg.Activity.Get()
	sections := !f.Recorded()
	if cfg == nil || f.End == f.Start || sections && (f.Time == 0 || weight != 1) {
		return
	}
	x := activity{start: f.Start, end: f.End, class: classCompute}
	switch {
	case sections:
		x.end = min(x.end, x.start+uint64(math.Round(f.Time*1e9)))
	case f.Type == semconv.GPUOperationTypeKernel:
		if f.collective() {
			x.class = classComm
		}
	case f.Type == semconv.GPUOperationTypeCollective:
		x.class = classComm
	case f.Type == semconv.GPUOperationTypeCopy || f.Type == semconv.GPUOperationTypeMemset:
		x.class = classCopy
	default:
		return
	}
	if !spanfacts.Sound(f.Start, f.End) || f.End > a.latest() {
		a.stats.activityTime++ // one such record could be years of work, or make all that follow late
		return
	}
	if f.HasStartDelay && f.StartDelay >= 0 && f.StartDelay*1e9 < float64(f.Start) {
		x.launch = f.Start - uint64(math.Round(f.StartDelay*1e9))
	}
	key := deviceKey{id: f.Device.ID, ordinal: f.Device.Ordinal, sections: sections}
	if key.id == "" {
		key.bdf = f.Device.BDF
	}
	t := r.devices[key]
	if t == nil {
		if len(r.devices) >= a.cfg.CardinalityLimit {
			a.stats.activityLimit++
			return
		}
		key.id, key.bdf = strings.Clone(key.id), strings.Clone(key.bdf)
		t = &timeline{edges: &a.edges}
		r.devices[key] = t
	}
	if t.newest > a.latest() { // the clock was set back
		a.settleTimeline(r, key, t, t.newest)
		t.settled, t.newest = 0, 0
	}
	waited := len(t.pending)
	switch {
	case a.activities >= cfg.MaxActivities:
		a.stats.activityLimit++
	case !t.add(x, now) && !sections: // a section that arrives after the one around it adds nothing
		a.stats.activityLate++
	}
	a.activities += len(t.pending) - waited
	if a.activities >= cfg.MaxActivities {
		for _, every := range a.resources {
			a.settleActivity(every, now, false)
		}
	}
}

// settleActivity analyzes the time that no late record can change any more.
func (a *aggregator) settleActivity(r *resource, now int64, final bool) {
	cfg := a.cfg.Activity.Get()
	if cfg == nil {
		return
	}
	for key, t := range r.devices {
		to := t.newest
		// An inactive device is settled completely; all devices are if there is no more room.
		if !final && now-t.seen < int64(cfg.Settle) && a.activities < cfg.MaxActivities {
			to -= min(to, uint64(cfg.Settle))
		}
		a.settleTimeline(r, key, t, to)
	}
}

// settleTimeline analyzes a device's activities up to a time.
func (a *aggregator) settleTimeline(r *resource, key deviceKey, t *timeline, to uint64) {
	waited, first := len(t.pending), t.first()
	spent := t.settle(to, uint64(a.cfg.Activity.Get().MaxGap))
	a.activities -= waited - len(t.pending)
	for state, d := range spent {
		if d > 0 {
			r.activitySeries(&a.settings, key, state, first).Add(float64(d)*1e-9, t.seen)
		}
	}
}

func (r *resource) activitySeries(st *settings, key deviceKey, state int, start uint64) *series.Series {
	attrs := pcommon.NewMap()
	sharedcomponent.PutText(attrs, semconv.HWIDKey, key.id)
	if key.ordinal >= 0 {
		attrs.PutInt(string(semconv.GPUDeviceOrdinalKey), key.ordinal)
	}
	if key.sections {
		attrs.PutStr(string(semconv.GPUSectionStateKey), sectionStates[state])
		return r.families[metricSectionTime].Get(&st.Settings, attrs, r.notBefore(st, start))
	}
	attrs.PutStr(string(semconv.GPUActivityStateKey), activityStates[state])
	return r.families[metricActivityTime].Get(&st.Settings, attrs, r.notBefore(st, start))
}

// Classes of activities, as bits, so that what runs together is a number.
const (
	classCompute = 1 << iota
	classComm
	classCopy
	stateStarved // idle, not a class: waiting for launches
)

// activity is one record of a profiler: [start, end) in unix ns.
type activity struct {
	start, end uint64
	launch     uint64 // when the host started to launch it; 0: unknown
	class      uint8
}

// timeline holds one device's activities that are not analyzed yet; the time before settled is
// analyzed.
type timeline struct {
	pending []activity
	settled uint64  // 0 before the first analysis
	newest  uint64  // end of the newest activity
	seen    int64   // when the last one arrived
	edges   *[]edge // scratch memory of all timelines
}

// add adds an activity; it returns false if its whole time has been analyzed.
func (t *timeline) add(x activity, now int64) bool {
	if x.end <= t.settled {
		return false
	}
	x.start = max(x.start, t.settled)
	if n := len(t.pending); n == 0 || !t.pending[n-1].extend(x) {
		t.pending = append(t.pending, x)
	}
	t.newest, t.seen = max(t.newest, x.end), now
	return true
}

// extend adds the time of another activity of the class that overlaps or touches this one;
// otherwise it returns false. Sections of a device often do, and only the time that they cover
// counts, not their number.
func (p *activity) extend(x activity) bool {
	if x.class != p.class || x.start > p.end || x.end < p.start {
		return false
	}
	if x.start < p.start {
		p.start, p.launch = x.start, x.launch
	}
	p.end = max(p.end, x.end)
	return true
}

// first returns the earliest time that settle has not analyzed.
func (t *timeline) first() uint64 {
	if t.settled > 0 || len(t.pending) == 0 {
		return t.settled
	}
	first := t.pending[0].start
	for i := range t.pending {
		first = min(first, t.pending[i].start)
	}
	return first
}

// edge is the start or end of an activity.
type edge struct {
	at     uint64
	launch uint64
	class  uint8
	begin  bool
}

// settle analyzes up to a time and returns the nanoseconds spent in each state. Gaps longer than
// maxGap are not counted. A gap that is still open at that time is counted when the next activity
// ends it.
func (t *timeline) settle(to, maxGap uint64) (spent [stateStarved + 1]uint64) {
	if len(t.pending) == 0 || to <= t.settled {
		return spent
	}
	waited := len(t.pending)
	edges := slices.Grow((*t.edges)[:0], 2*waited)
	defer func() { *t.edges = edges }()
	keep := t.pending[:0]
	for _, x := range t.pending {
		if x.start < to {
			edges = append(edges, edge{x.start, x.launch, x.class, true}, edge{min(x.end, to), 0, x.class, false})
		}
		if x.end > to {
			x.start = max(x.start, to)
			keep = append(keep, x)
		}
	}
	if len(edges) == 0 {
		return spent // nothing starts before to
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var running [classCopy + 1]int
	state, at := 0, t.settled
	for _, e := range edges {
		d := e.at - at
		switch {
		case state != 0:
			spent[state] += d
		case t.settled == 0 && at == 0, d > maxGap:
			// before the first activity, or a pause of the profiler
		case e.launch > at:
			spent[stateStarved] += d
		default:
			spent[0] += d
		}
		at = e.at
		if e.begin {
			running[e.class]++
			state |= int(e.class)
		} else if running[e.class]--; running[e.class] == 0 {
			state &^= int(e.class)
		}
	}
	t.settled = at
	t.pending = keep
	if cap(keep) > 4*waited { // more waited once than now
		t.pending = slices.Clone(keep)
	}
	return spent
}
