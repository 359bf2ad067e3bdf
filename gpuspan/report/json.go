// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"io"
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
	type plain Summary
	s.Operations = append([]Operation{}, s.Operations...) // not null
	var coverage *float64
	if c, ok := s.WallCoverage(); ok {
		coverage = &c
	}
	return json.Marshal(struct {
		plain
		Wall         float64     `json:"wall_seconds"`
		Covered      float64     `json:"covered_seconds"`
		WallCoverage *float64    `json:"wall_coverage,omitempty"`
		Findings     []Finding   `json:"findings,omitempty"`
		Items        []ItemTotal `json:"items,omitempty"`
	}{plain(s), s.Wall().Seconds(), s.Covered.Seconds(), coverage, s.Findings(Thresholds{}), s.Items()})
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

// MarshalJSON implements json.Marshaler: the figures and the rates that follow from them.
func (f Figures) MarshalJSON() ([]byte, error) {
	type plain Figures
	return json.Marshal(struct {
		plain
		Rates Rates `json:"rates,omitzero"`
	}{plain(f), f.Rates()})
}

// MarshalJSON implements json.Marshaler.
func (o Operation) MarshalJSON() ([]byte, error) {
	type plain Operation
	var l2 *float64
	if o.HasL2HitRatio {
		l2 = &o.L2HitRatio
	}
	return json.Marshal(struct {
		plain
		L2HitRatio *float64 `json:"l2_hit_ratio,omitempty"`
	}{plain(o), l2})
}

// MarshalJSON implements json.Marshaler.
func (l Loop) MarshalJSON() ([]byte, error) {
	type plain Loop
	l.Phases = append([]Phase{}, l.Phases...) // not null
	return json.Marshal(struct {
		plain
		Overlap float64 `json:"overlap_seconds"`
		Other   float64 `json:"other_seconds"`
		Covered float64 `json:"covered_seconds,omitempty"`
		Exposed float64 `json:"exposed_communication_seconds,omitempty"`
		Waiting float64 `json:"waiting_for_data_seconds,omitempty"`
	}{
		plain(l), l.Overlap.Seconds(), l.Other.Seconds(), l.Covered.Seconds(), l.Exposed.Seconds(), l.Waiting.Seconds(),
	})
}
