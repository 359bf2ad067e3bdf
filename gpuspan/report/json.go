// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"io"
	"time"
)

// WriteJSON writes the summary and its findings as one indented JSON object. Durations are seconds, sizes bytes, rates
// per second, shares 0 to 1; what is not known is absent.
func (s Summary) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(s)
}

// MarshalJSON implements json.Marshaler.
func (s Summary) MarshalJSON() ([]byte, error) {
	var coverage *float64
	if c, ok := s.WallCoverage(); ok {
		coverage = &c
	}
	return json.Marshal(struct {
		Service      string           `json:"service,omitempty"`
		Start        time.Time        `json:"start,omitzero"`
		End          time.Time        `json:"end,omitzero"`
		Wall         float64          `json:"wall_seconds"`
		Covered      float64          `json:"covered_seconds"`
		WallCoverage *float64         `json:"wall_coverage,omitempty"`
		Devices      []Device         `json:"devices,omitempty"`
		Operations   []Operation      `json:"operations"`
		Loops        []Loop           `json:"loops,omitempty"`
		Findings     []Finding        `json:"findings,omitempty"`
		OnHost       int64            `json:"timed_on_host,omitempty"`
		Dropped      map[string]int64 `json:"dropped,omitempty"`
		Overflow     int64            `json:"overflow,omitempty"`
		Pending      int64            `json:"pending,omitempty"`
		Items        []ItemTotal      `json:"items,omitempty"`
	}{
		s.Service, s.Start, s.End, s.Wall().Seconds(), s.Covered.Seconds(), coverage, s.Devices,
		append([]Operation{}, s.Operations...), s.Loops, s.Findings(Thresholds{}), s.OnHost, s.Dropped, s.Overflow, s.Pending,
		s.Items(),
	})
}

// MarshalJSON implements json.Marshaler: the fields of Device with the floor in seconds.
func (d Device) MarshalJSON() ([]byte, error) {
	type plain Device
	return json.Marshal(struct {
		plain
		Floor float64 `json:"floor_seconds,omitempty"`
	}{plain(d), d.Floor.Seconds()})
}

// MarshalJSON implements json.Marshaler.
func (d Durations) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count  int64   `json:"count"`
		Total  float64 `json:"total_seconds"`
		Min    float64 `json:"min_seconds"`
		Max    float64 `json:"max_seconds"`
		Mean   float64 `json:"mean_seconds"`
		StdDev float64 `json:"stddev_seconds"`
		P50    float64 `json:"p50_seconds,omitempty"`
		P99    float64 `json:"p99_seconds,omitempty"`
	}{
		d.Count, d.Total.Seconds(), d.Min.Seconds(), d.Max.Seconds(), d.Mean.Seconds(), d.StdDev.Seconds(),
		d.P50.Seconds(), d.P99.Seconds(),
	})
}

func (d Durations) known() *Durations {
	if d.Count == 0 {
		return nil
	}
	return &d
}

// MarshalJSON implements json.Marshaler: the figures and the rates that follow from them.
func (f Figures) MarshalJSON() ([]byte, error) {
	type rates struct {
		MemoryRead    float64 `json:"memory_read_bytes_per_second,omitempty"`
		MemoryWritten float64 `json:"memory_write_bytes_per_second,omitempty"`
		Memory        float64 `json:"memory_bytes_per_second,omitempty"`
		PCIeRead      float64 `json:"pcie_read_bytes_per_second,omitempty"`
		PCIeWritten   float64 `json:"pcie_write_bytes_per_second,omitempty"`
		PCIe          float64 `json:"pcie_bytes_per_second,omitempty"`
		FLOPs         float64 `json:"flops_per_second,omitempty"`
		Items         float64 `json:"items_per_second,omitempty"`
	}
	return json.Marshal(struct {
		Count    int64              `json:"count"`
		Duration *Durations         `json:"duration,omitempty"`
		Memory   IO                 `json:"memory_bytes,omitzero"`
		PCIe     IO                 `json:"pcie_bytes,omitzero"`
		Items    int64              `json:"items,omitempty"`
		FLOPs    map[string]float64 `json:"flops,omitempty"`
		Rates    rates              `json:"rates,omitzero"`
	}{f.Count, f.Duration.known(), f.Memory, f.PCIe, f.Items, f.FLOPs, rates(f.Rates())})
}

func (o *Operation) l2() *float64 {
	if !o.HasL2HitRatio {
		return nil
	}
	return &o.L2HitRatio
}

func (f Figures) ran() *Figures {
	if f.Count == 0 {
		return nil
	}
	return &f
}

// MarshalJSON implements json.Marshaler.
func (o Operation) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name          string   `json:"name"`
		Path          []string `json:"path"`
		Category      string   `json:"category,omitempty"`
		Type          string   `json:"type,omitempty"`
		Description   string   `json:"description,omitempty"`
		ItemType      string   `json:"item_type,omitempty"`
		Direction     string   `json:"copy_direction,omitempty"`
		HostMemory    string   `json:"copy_host_memory,omitempty"`
		Level         string   `json:"level,omitempty"`
		Device        int      `json:"device"`
		ShareOfParent float64  `json:"share_of_parent,omitempty"`
		ShareOfTotal  float64  `json:"share_of_total,omitempty"`
		PeakShare     float64  `json:"peak_share,omitempty"`
		PeakOf        string   `json:"peak_of,omitempty"`
		Starved       int64    `json:"starved,omitempty"`
		BelowFloor    int64    `json:"below_floor,omitempty"`
		AccessPattern string   `json:"access_pattern,omitempty"`
		L2HitRatio    *float64 `json:"l2_hit_ratio,omitempty"`
		MemoryPeak    int64    `json:"memory_peak_bytes,omitempty"`
		MemorySpike   int64    `json:"memory_spike_bytes,omitempty"`
		All           Figures  `json:"all"`
		First         *Figures `json:"first,omitempty"`
		Rest          *Figures `json:"rest,omitempty"`
		Kernels       []Kernel `json:"kernels,omitempty"`
	}{
		o.Name, o.Path, o.Category, o.Type, o.Description, o.ItemType, o.Direction, o.HostMemory, o.Level, o.Device,
		o.ShareOfParent, o.ShareOfTotal, o.PeakShare, o.PeakOf, o.Starved, o.BelowFloor, o.AccessPattern, o.l2(),
		o.MemoryPeak, o.MemorySpike,
		o.All, o.First.ran(), o.Rest.ran(), o.Kernels,
	})
}

// MarshalJSON implements json.Marshaler.
func (l Loop) MarshalJSON() ([]byte, error) {
	type phase struct {
		Name     string    `json:"name"`
		Duration Durations `json:"duration"`
	}
	phases := make([]phase, len(l.Phases))
	for i, p := range l.Phases {
		phases[i] = phase(p)
	}
	return json.Marshal(struct {
		Name       string     `json:"name"`
		Steps      int64      `json:"steps"`
		Duration   *Durations `json:"duration,omitempty"`
		Host       *Durations `json:"host_duration,omitempty"`
		Phases     []phase    `json:"phases"`
		Overlap    float64    `json:"overlap_seconds"`
		Other      float64    `json:"other_seconds"`
		Covered    float64    `json:"covered_seconds,omitempty"`
		Exposed    float64    `json:"exposed_communication_seconds,omitempty"`
		Waiting    float64    `json:"waiting_for_data_seconds,omitempty"`
		Items      int64      `json:"items,omitempty"`
		ItemType   string     `json:"item_type,omitempty"`
		ModelFLOPs float64    `json:"model_flops,omitempty"`
		MFU        float64    `json:"mfu,omitempty"`
	}{
		l.Name, l.Steps, l.Duration.known(), l.Host.known(), phases, l.Overlap.Seconds(), l.Other.Seconds(),
		l.Covered.Seconds(), l.Exposed.Seconds(), l.Waiting.Seconds(), l.Items, l.ItemType, l.ModelFLOPs, l.MFU,
	})
}
