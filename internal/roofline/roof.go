// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package roofline

import (
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/semconv"
)

// Roof has the peaks of one device. Zero rates are unknown.
type Roof struct {
	Memory, Host, Interconnect Peak
	Domain                     int             // devices that the interconnect joins
	FLOPs                      map[string]Peak // by precision
}

// Of returns the roof of a row of the table of peaks; the zero row is an unknown device.
func Of(row *peaks.Device) Roof {
	r := Roof{Domain: row.Domain, FLOPs: map[string]Peak{}}
	r.Memory.Set(row.MemoryBandwidth, FromTable)
	r.Host.Set(row.Host.Rate(), FromTable)
	r.Interconnect.Set(row.Interconnect, FromTable)
	r.SetFLOPs(row.FLOPs.Of, FromTable)
	return r
}

// OfModel returns the roof of a device model, which may be a MIG instance.
func OfModel(model string) Roof {
	base, profile := peaks.SplitMIG(model)
	row, _ := peaks.Lookup(base)
	r := Of(&row)
	if profile != "" {
		r.Instance(&row, profile)
	}
	return r
}

// Instance scales the peaks of a physical GPU to a MIG instance of a profile.
func (r *Roof) Instance(row *peaks.Device, profile string) {
	if part, ok := row.Profile(profile); ok {
		r.Divide(float64(part.SMs)/float64(row.SMs), part.MemorySize/row.MemorySize)
	} else {
		r.Divide(0, 0)
	}
}

// Divide scales the peaks of a physical GPU to a MIG instance: arithmetic by its share of the SMs,
// memory by its share of the slices. The host link is shared and unchanged; NVLink cannot be used.
// If the shares are 0, those peaks are unknown, because the physical GPU's peaks would be too high.
func (r *Roof) Divide(sms, memory float64) {
	r.Interconnect, r.Domain = Peak{}, 0
	if sms == 0 {
		r.FLOPs, r.Memory = map[string]Peak{}, Peak{}
		return
	}
	for precision, p := range r.FLOPs {
		r.FLOPs[precision] = Peak{p.Rate * sms, p.Source}
	}
	r.Memory.Rate *= memory
}

// SetFLOPs sets the known rates by precision.
func (r *Roof) SetFLOPs(rate func(precision string) float64, source Source) {
	for _, precision := range peaks.Precisions() {
		p := r.FLOPs[precision]
		p.Set(rate(precision), source)
		r.FLOPs[precision] = p
	}
}

// Peak is the highest rate of something, per second.
type Peak struct {
	Rate   float64
	Source Source
}

// Set sets a known rate, unless the present one overrides it.
func (p *Peak) Set(rate float64, source Source) {
	if rate > 0 && source >= p.Source {
		*p = Peak{rate, source}
	}
}

// Source is where a peak is from, ordered by how much it overrides.
type Source uint8

// Sources.
const (
	Unknown Source = iota
	FromTable
	FromDevice
	FromConfig
)

// String returns the value of gpu.peak.source.
func (s Source) String() string {
	return [...]string{
		"", semconv.GPUPeakSourceTable, semconv.GPUPeakSourceDevice, semconv.GPUPeakSourceConfig,
	}[s]
}
