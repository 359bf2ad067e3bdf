// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

// maxErrors and maxSections bound how many device errors and section times are kept.
const (
	maxErrors   = 1000
	maxSections = 10_000
)

// deviceError is an increase of a device's error counter. Corrected errors are not included.
type deviceError struct {
	device string
	kind   string
	count  float64
	time   float64 // unix ms
	trace  string  // of a span that ran then
}

// errorNames are the values of error.type that are findings, as the alerts GPUXID and
// GPUMemoryErrors have them.
var errorNames = map[string]string{
	"xid":                      "XID",
	"ecc_uncorrected":          "uncorrected memory error",
	"retired_page_uncorrected": "uncorrected memory error (page retired)",
	"row_remap_uncorrected":    "uncorrected memory error (row remapped)",
}

// errorPoint reads a point of hw.errors.
func (m *Model) errorPoint(p pmetric.NumberDataPoint, delta bool) {
	kind := text(p, string(semconv.ErrorTypeKey))
	d, at := m.pointDevice(p)
	if d == nil || errorNames[kind] == "" {
		return
	}
	if n := d.increase(semconv.HWErrorsName+" "+kind, p, delta); n > 0 {
		e := deviceError{device: d.id, kind: kind, count: n, time: float64(at) * 1e3}
		d.recent.each(func(r *recent) {
			if millis(r.start) <= e.time+1e3 {
				e.trace = r.trace.String()
			}
		})
		m.errors.put(e, maxErrors)
	}
}

// sectionTime is an increase of gpu.section.time.
type sectionTime struct {
	service, device string
	starved         bool
	seconds         float64
	time            float64 // unix ms
}

// sectionPoint reads a point of gpu.section.time of a process.
func (m *Model) sectionPoint(service string, resource pcommon.Map, p pmetric.NumberDataPoint, delta bool) {
	d, at := m.pointDevice(p)
	if d == nil {
		return
	}
	state, instance := text(p, string(semconv.GPUSectionStateKey)), ""
	if v, ok := resource.Get("service.instance.id"); ok {
		instance = clip(v.AsString())
	}
	key := strings.Join([]string{semconv.GPUSectionTimeName, service, instance, state}, " ")
	s := d.increase(key, p, delta)
	if s > 0 {
		m.sections.put(sectionTime{
			service: service, device: d.id, starved: state == semconv.GPUSectionStateStarved, seconds: s,
			time: float64(at) * 1e3,
		}, maxSections)
	}
}

// pointDevice returns the device of a point and the point's time in unix s; nil if it has no device
// or no value.
func (m *Model) pointDevice(p pmetric.NumberDataPoint) (*device, int64) {
	id := gpuOf(p)
	at := int64(p.Timestamp() / pcommon.Timestamp(time.Second))
	if v := number(p); id == "" || math.IsNaN(v) || math.IsInf(v, 0) || at > m.latest {
		return nil, 0
	}
	return m.deviceOf(id, text(p, string(semconv.HWNameKey)), text(p, string(semconv.HWModelKey))), at
}

// deviceError returns the device with the most errors.
func (m *Model) deviceError(w *window) (finding.Finding, bool) {
	type key struct{ device, kind string }
	type sum struct {
		count float64
		f     finding.Finding // its trace and times
	}
	sums := map[key]*sum{}
	m.errors.each(func(e *deviceError) {
		if !w.has(e.time) {
			return
		}
		k := key{e.device, e.kind}
		if sums[k] == nil {
			sums[k] = &sum{}
		}
		sums[k].count += e.count
		sums[k].f.Trace = cmp.Or(e.trace, sums[k].f.Trace)
		occurred(&sums[k].f, e.time, e.time)
	})
	k, s := largest(sums, func(_ key, s *sum) float64 { return s.count })
	if s == nil {
		return finding.Finding{}, false
	}
	name, detail, _ := strings.Cut(errorNames[k.kind], " (")
	if s.count != 1 {
		name += "s"
	}
	if detail != "" {
		name += " (" + detail
	}
	device := m.deviceName(k.device)
	text := fmt.Sprintf("%s reported %.0f %s", device, s.count, name)
	f := found(semconv.GPUFindingKindDeviceError, device, text, 0, s.f.Trace)
	f.From, f.To = s.f.From, s.f.To
	return f, true
}

// memoryNearLimit returns the device whose memory was fullest.
func (m *Model) memoryNearLimit(w *window) (finding.Finding, bool) {
	var full *device
	most, used, when := semconv.FindingMemoryLimitThreshold, 0.0, 0.0
	for _, d := range m.devices {
		if d.memory <= 0 {
			continue
		}
		for i := range d.samples {
			s := &d.samples[i]
			if !s.known[memory] || !w.has(float64(s.at)*1e3) {
				continue
			}
			if share := s.value[memory] / d.memory; share > most || share == most && full == nil {
				full, most, used, when = d, share, s.value[memory], float64(s.at)*1e3
			}
		}
	}
	if full == nil {
		return finding.Finding{}, false
	}
	const gib = 1 << 30
	device := m.deviceName(full.id)
	f := found(semconv.GPUFindingKindMemoryLimit, device,
		fmt.Sprintf("%s had %.1f of %.1f GiB in use", device, used/gib, full.memory/gib), most, "")
	f.From, f.To = when, when
	return f, true
}

// leastObserved is the minimum section time of a process for a share of it, s.
const leastObserved = semconv.FindingStarvedObserved

// busyDevice is the utilization above which a device is not starved, whatever one of its processes
// does.
const busyDevice = semconv.FindingStarvedBusy

// starved returns the training process that left its device without work for the largest share of
// its time. A service without requests is idle, so only services with steps are judged, as by the
// alert GPUStarved.
func (m *Model) starved(w *window) (finding.Finding, bool) {
	steps := map[string]string{} // an example by service
	m.steps.each(func(st *Step) {
		if w.has(st.Time) {
			steps[st.Service] = st.Trace
		}
	})
	type key struct{ service, device string }
	type sum struct {
		starved, all float64
		f            finding.Finding // its times
	}
	sums := map[key]*sum{}
	m.sections.each(func(x *sectionTime) {
		if !w.has(x.time) || steps[x.service] == "" {
			return
		}
		k := key{x.service, x.device}
		if sums[k] == nil {
			sums[k] = &sum{}
		}
		sums[k].all += x.seconds
		if x.starved {
			sums[k].starved += x.seconds
			occurred(&sums[k].f, x.time, x.time)
		}
	})
	for k, s := range sums {
		if s.all < leastObserved || s.starved < semconv.FindingStarvedThreshold*s.all || m.busy(k.device, w) {
			delete(sums, k)
		}
	}
	k, s := largest(sums, func(_ key, s *sum) float64 { return s.starved / s.all })
	if s == nil {
		return finding.Finding{}, false
	}
	device, share := m.deviceName(k.device), s.starved/s.all
	f := found(semconv.GPUFindingKindStarved, device, fmt.Sprintf("%s leaves %s without work for %.0f %% of its time",
		cmp.Or(k.service, "a service"), device, 100*share), share, steps[k.service])
	f.From, f.To = s.f.From, s.f.To
	return f, true
}

// busy reports whether a device measured a mean utilization above busyDevice.
func (m *Model) busy(id string, w *window) bool {
	d := m.devices[id]
	if d == nil {
		return false
	}
	sum, n := 0.0, 0.0
	for i := range d.samples {
		s := &d.samples[i]
		if s.known[busy] && w.has(float64(s.at)*1e3) {
			sum += s.value[busy]
			n++
		}
	}
	return n > 0 && sum/n > busyDevice
}

// deviceName returns a device's name for people.
func (m *Model) deviceName(id string) string {
	if d := m.devices[id]; d != nil {
		return m.title(d)
	}
	return id
}
