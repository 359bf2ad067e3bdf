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
	"github.com/otelgpu/otelgpu/internal/roofline"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

const (
	// maxRoofs limits the devices that are remembered; senders choose the identities. At the limit
	// all are removed.
	maxRoofs = 4096
	// roofAge is how long limits read from the samples are valid: links are renegotiated, instances
	// recreated.
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

// roof returns the peaks of a device, nil if none are known. now is unix ns. It is safe for
// concurrent use and allocates only for devices not seen before.
func (r *resolver) roof(d device, now int64) *roofline.Roof {
	r.mu.RLock()
	found := r.roofs[d]
	r.mu.RUnlock()
	if found == nil || found.expires > 0 && now >= found.expires {
		found = r.remember(d, now)
	}
	if !found.known {
		return nil
	}
	return &found.Roof
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

// make builds a roof from the table's row, the configured overrides, the share of a MIG instance,
// and limits that the device itself reports; the configuration overrides the rest.
func (r *resolver) make(d device) *roof {
	sampled := r.sampled(d.id)
	base, profile := peaks.SplitMIG(cmp.Or(d.model, sampled.Model, r.cfg.Model))
	profile = cmp.Or(profile, sampled.MIG.Profile)
	row, _ := peaks.Lookup(base)
	made := &roof{Roof: roofline.Of(&row)}
	r.override(made, base)
	if profile != "" || d.parent != "" || sampled.Parent != "" || strings.HasPrefix(d.id, "MIG-") {
		made.instance(&row, profile, &sampled.MIG)
	}
	if row.Name != "" && row.Host.Generation == 0 {
		sampled.Limits.PCIeBandwidth = 0 // GH200, GB200, MI300A have a PCIe link, but copies from the host do not take it
	}
	made.limits(&sampled.Limits)
	made.known = made.Memory.Rate > 0 || made.Host.Rate > 0 || made.Interconnect.Rate > 0
	for _, p := range made.FLOPs {
		made.known = made.known || p.Rate > 0
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
		if !spanfacts.Matches(strings.ToLower(p.Model), model) {
			continue
		}
		made.Memory.Set(p.MemoryBandwidth, roofline.FromConfig)
		made.Host.Set(p.HostBandwidth, roofline.FromConfig)
		made.Interconnect.Set(p.InterconnectBandwidth, roofline.FromConfig)
		if p.InterconnectDevices > 0 {
			made.Domain = p.InterconnectDevices
		}
		made.SetFLOPs(func(precision string) float64 { return p.FLOPRate[precision] }, roofline.FromConfig)
	}
}

// instance scales the peaks of a physical GPU to a MIG instance. What the driver reports comes
// before the table of profiles; it has the SMs of a compute instance, too, which uses the memory of
// its GPU instance.
func (m *roof) instance(row *peaks.Device, profile string, share *devicesamples.MIG) {
	all := cmp.Or(share.BoardSMs, row.SMs)
	if share.SMs > 0 && all >= share.SMs && share.Slices > 0 && share.AllSlices >= share.Slices {
		m.Divide(float64(share.SMs)/float64(all), float64(share.Slices)/float64(share.AllSlices))
		return
	}
	m.Instance(row, profile)
}

// limits sets the peaks that the device reports, which apply to the instance already.
func (m *roof) limits(l *devicesamples.Limits) {
	m.Memory.Set(l.MemoryBandwidth, roofline.FromDevice)
	m.Host.Set(l.PCIeBandwidth, roofline.FromDevice)
	m.Interconnect.Set(l.NVLinkBandwidth, roofline.FromDevice)
	m.SetFLOPs(func(precision string) float64 { return l.FLOPRate[precision] }, roofline.FromDevice)
}

// roof has the peaks of one device.
type roof struct {
	roofline.Roof
	known   bool  // any peak at all
	expires int64 // unix ns after which it is created again; 0: never
}
