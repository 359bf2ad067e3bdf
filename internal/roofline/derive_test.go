// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package roofline

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unitRoof returns peaks of 1 B/s and 1 FLOP/s, so that amounts per second are fractions of a peak.
func unitRoof() *Roof {
	return &Roof{Memory: Peak{1, FromTable}, FLOPs: map[string]Peak{"bf16": {1, FromConfig}}}
}

// sectionFacts returns facts of a section of 1 s.
func sectionFacts(size, flops float64) spanfacts.Facts {
	return spanfacts.Facts{
		Kind: spanfacts.Section, Time: 1, Elapsed: 1, Status: semconv.GPUTimingStatusOk, Source: "cuda_event",
		Size: size, FLOPs: flops, Precision: "bf16",
	}
}

func TestPeakSourceIsTheStrongerOfBandwidthAndFLOPs(t *testing.T) {
	for name, tt := range map[string]struct {
		memory, flops Source
		want          string
	}{
		"FLOPs":     {FromTable, FromConfig, semconv.GPUPeakSourceConfig},
		"bandwidth": {FromConfig, FromTable, semconv.GPUPeakSourceConfig},
		"device":    {FromDevice, FromTable, semconv.GPUPeakSourceDevice},
	} {
		r := unitRoof()
		r.Memory.Source, r.FLOPs["bf16"] = tt.memory, Peak{1, tt.flops}
		f := sectionFacts(0.5, 0.5)
		var d Values
		d.Derive(&f, r, 0)
		assert.Equal(t, tt.want, d.PeakSource, name)
	}
}

func TestLatencyBoundsWorkBelowATenthOfTheRoof(t *testing.T) {
	for share, want := range map[float64]string{
		0.04: semconv.GPURooflineBoundLatency, 0.09999: semconv.GPURooflineBoundLatency,
		0.10001: semconv.GPURooflineBoundMemory, 0.9: semconv.GPURooflineBoundMemory,
	} {
		f := sectionFacts(share, share/2)
		var d Values
		d.Derive(&f, unitRoof(), 0)
		assert.Equal(t, want, d.Bound, "%v of the roof", share)
		assert.InDelta(t, share, d.Utilization, 1e-12)
	}
}

// If the timing error of a section's end is as large as its delay, the queue may not have been
// empty.
func TestOnlyACertainDelayShowsThatTheQueueWasEmpty(t *testing.T) {
	for _, tt := range []struct {
		timingError, delay, share float64
		want                      string
	}{
		{0.09, 0.09, 0.4, semconv.GPURooflineBoundLaunch},
		{0.11, 0.09, 0.4, semconv.GPURooflineBoundMemory},
		{0.09, 0.11, 0.4, semconv.GPURooflineBoundMemory},
		{0.09, 0.09, 0.49999, semconv.GPURooflineBoundLaunch},
		{0.09, 0.09, 0.50001, semconv.GPURooflineBoundMemory},
	} {
		f := sectionFacts(tt.share, tt.share/2)
		f.HasEndDelay, f.EndDelay, f.TimingError = true, tt.delay, tt.timingError
		var d Values
		d.Derive(&f, unitRoof(), 0)
		assert.Equal(t, tt.want, d.Bound, "%+v", tt)
	}
}

// Sections that declare fewer FLOPs than the model declare only a part of the hardware's work.
func TestHFUNeedsTheFLOPsOfTheWholeModel(t *testing.T) {
	for _, tt := range []struct {
		flops, model, devices float64
		want                  float64 // NaN: absent
	}{
		{0.6, 0.6, 1, 0.6},
		{0.6, 0.6 * (1 + 1e-12), 1, 0.6}, // rounding
		{0.59, 0.6, 1, math.NaN()},
		{0.3, 0.6, 1, math.NaN()},
		{0.3, 0.6, 2, 0.3}, // two devices, each with half of the model's FLOPs
		{0.29, 0.6, 2, math.NaN()},
		{0.3, 0, 1, 0.3},
	} {
		f := spanfacts.Facts{
			Kind: spanfacts.Step, StepDuration: 1, Elapsed: 1, FLOPs: tt.flops, ModelFLOPs: tt.model, Devices: tt.devices,
			Precision: "bf16",
		}
		var d Values
		d.Derive(&f, unitRoof(), 0)
		if math.IsNaN(tt.want) {
			assert.True(t, math.IsNaN(d.HFU), "%+v: %v", tt, d.HFU)
		} else {
			assert.InDelta(t, tt.want, d.HFU, 1e-12, "%+v", tt)
		}
	}
}
