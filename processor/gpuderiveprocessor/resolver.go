// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

const (
	// maxRoofs limits the devices that are remembered; senders choose the identities. At the limit all are removed.
	maxRoofs = 4096
	// roofAge is how long limits read from the samples are valid: links are renegotiated, instances recreated.
	roofAge = 10 * time.Second
)

// resolver finds the roof of a device by the identity on a span, and caches it.
type resolver struct {
	cfg    *Config
	reader devicesamples.Reader // nil without `samples`
	log    *zap.Logger

	mu    sync.RWMutex
	roofs map[device]*roof
	named map[string]struct{} // models that were logged as unknown
}

// device is the device of a span as the span states it.
type device struct{ id, parent, model string }

func newResolver(cfg *Config, log *zap.Logger) *resolver {
	return &resolver{cfg: cfg, log: log, roofs: make(map[device]*roof), named: make(map[string]struct{})}
}

// roof returns the peaks of a device, nil if none are known. now is unix ns. It is safe for concurrent use and
// allocates only for devices not seen before.
func (r *resolver) roof(d device, now int64) *roof {
	r.mu.RLock()
	found := r.roofs[d]
	r.mu.RUnlock()
	if found == nil || found.expires > 0 && now >= found.expires {
		found = r.remember(d, now)
	}
	if !found.known {
		return nil
	}
	return found
}

func (r *resolver) remember(d device, now int64) *roof {
	// The strings belong to the batch; kept ones must not keep its memory.
	d = device{strings.Clone(d.id), strings.Clone(d.parent), strings.Clone(d.model)}
	made := r.make(d)
	if r.reader != nil {
		made.expires = now + int64(roofAge)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.roofs) >= maxRoofs {
		clear(r.roofs)
	}
	r.roofs[d] = made
	if _, again := r.named[d.model]; !made.known && d.model != "" && !again && len(r.named) < maxRoofs {
		r.named[d.model] = struct{}{}
		r.log.Info("no peaks are known for this device model, so its spans get no utilization (add it under `peaks`)",
			zap.String("hw.model", d.model))
	}
	return made
}

// make builds a roof from the table's row, the configured overrides, the share of a MIG instance, and limits that the
// device itself reports; the configuration overrides the rest.
func (r *resolver) make(d device) *roof {
	sampled := r.sampled(d.id)
	base, profile := peaks.SplitMIG(cmp.Or(d.model, sampled.Model, r.cfg.Model))
	profile = cmp.Or(profile, sampled.MIG.Profile)
	row, _ := peaks.Lookup(base)
	made := &roof{domain: row.Domain, flops: make(map[string]peak)}
	made.memory.set(row.MemoryBandwidth, peakTable)
	made.host.set(row.Host.Rate(), peakTable)
	made.interconnect.set(row.Interconnect, peakTable)
	made.setFLOPs(row.FLOPs.Of, peakTable)
	r.override(made, base)
	if profile != "" || d.parent != "" || sampled.Parent != "" || strings.HasPrefix(d.id, "MIG-") {
		made.instance(&row, profile, &sampled.MIG)
	}
	if row.Name != "" && row.Host.Generation == 0 {
		sampled.Limits.PCIeBandwidth = 0 // GH200, GB200, MI300A have a PCIe link, but copies from the host do not take it
	}
	made.limits(&sampled.Limits)
	made.known = made.memory.rate > 0 || made.host.rate > 0 || made.interconnect.rate > 0
	for _, p := range made.flops {
		made.known = made.known || p.rate > 0
	}
	return made
}

// sampled returns the values of the samples' source for a device; the zero value without a source.
func (r *resolver) sampled(id string) devicesamples.Device {
	if r.reader == nil || id == "" {
		return devicesamples.Device{}
	}
	view := r.reader.Acquire()
	defer view.Release()
	if d, ok := view.Lookup(id); ok {
		return *d.Device()
	}
	return devicesamples.Device{}
}

func (r *resolver) override(made *roof, model string) {
	model = strings.ToLower(model)
	for i := range r.cfg.Peaks {
		p := &r.cfg.Peaks[i]
		if !matches(strings.ToLower(p.Model), model) {
			continue
		}
		made.memory.set(p.MemoryBandwidth, peakConfig)
		made.host.set(p.HostBandwidth, peakConfig)
		made.interconnect.set(p.InterconnectBandwidth, peakConfig)
		if p.InterconnectDevices > 0 {
			made.domain = p.InterconnectDevices
		}
		made.setFLOPs(func(precision string) float64 { return p.FLOPRate[precision] }, peakConfig)
	}
}

// instance scales the peaks of a physical GPU to a MIG instance: arithmetic by SMs, memory by slices. The host link is
// shared and unchanged; NVLink cannot be used. What the driver reports comes before the table of profiles; it has the
// SMs of a compute instance, too, which uses the memory of its GPU instance. With neither those peaks are unknown,
// because the physical GPU's peaks would be too high.
func (m *roof) instance(row *peaks.Device, profile string, share *devicesamples.MIG) {
	m.interconnect, m.domain = peak{}, 0
	var sms, memory float64
	switch all := cmp.Or(share.BoardSMs, row.SMs); {
	case share.SMs > 0 && all >= share.SMs && share.Slices > 0 && share.AllSlices >= share.Slices:
		sms, memory = float64(share.SMs)/float64(all), float64(share.Slices)/float64(share.AllSlices)
	default:
		if part, ok := row.Profile(profile); ok {
			sms, memory = float64(part.SMs)/float64(row.SMs), part.MemorySize/row.MemorySize
		}
	}
	if sms == 0 {
		m.flops, m.memory = map[string]peak{}, peak{}
		return
	}
	for precision, p := range m.flops {
		m.flops[precision] = peak{p.rate * sms, p.source}
	}
	m.memory.rate *= memory
}

// limits sets the peaks that the device reports, which apply to the instance already.
func (m *roof) limits(l *devicesamples.Limits) {
	m.memory.set(l.MemoryBandwidth, peakDevice)
	m.host.set(l.PCIeBandwidth, peakDevice)
	m.interconnect.set(l.NVLinkBandwidth, peakDevice)
	m.setFLOPs(func(precision string) float64 { return l.FLOPRate[precision] }, peakDevice)
}

// setFLOPs sets the known rates by precision.
func (m *roof) setFLOPs(rate func(precision string) float64, source peakSource) {
	for _, precision := range peaks.Precisions() {
		p := m.flops[precision]
		p.set(rate(precision), source)
		m.flops[precision] = p
	}
}

// roof has the peaks of one device. Zero rates are unknown.
type roof struct {
	memory, host, interconnect peak
	domain                     int             // devices that the interconnect joins
	flops                      map[string]peak // by precision
	known                      bool            // any peak at all
	expires                    int64           // unix ns after which it is created again; 0: never
}

type peak struct {
	rate   float64
	source peakSource
}

// peakSource is ordered by how much it overrides.
type peakSource uint8

const (
	peakUnknown peakSource = iota
	peakTable
	peakDevice
	peakConfig
)

func (s peakSource) String() string {
	switch s {
	case peakTable:
		return semconv.GPUPeakSourceTable
	case peakDevice:
		return semconv.GPUPeakSourceDevice
	case peakConfig:
		return semconv.GPUPeakSourceConfig
	}
	return ""
}

// set sets a known rate, unless the present one overrides it.
func (p *peak) set(rate float64, source peakSource) {
	if rate > 0 && source >= p.source {
		*p = peak{rate, source}
	}
}
