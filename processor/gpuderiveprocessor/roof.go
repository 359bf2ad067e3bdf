// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/semconv"
)

// roof is what one device can do at best. Zero rates are unknown.
type roof struct {
	memory, host, interconnect peak
	domain                     int // devices that the interconnect joins
	flops                      flopPeaks
	known                      bool  // any peak at all
	expires                    int64 // unix ns after which it is made anew; 0: never
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

// set takes a rate that is known; a later call overrides.
func (p *peak) set(rate float64, source peakSource) {
	if rate > 0 {
		*p = peak{rate, source}
	}
}

func (p *peak) scale(by float64) { p.rate *= by }

// flopPeaks are peaks by precision.
type flopPeaks struct{ fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8 peak }

func (f *flopPeaks) field(precision string) *peak {
	switch precision {
	case semconv.GPUFLOPPrecisionFp64:
		return &f.fp64
	case semconv.GPUFLOPPrecisionFp32:
		return &f.fp32
	case semconv.GPUFLOPPrecisionTf32:
		return &f.tf32
	case semconv.GPUFLOPPrecisionFp16:
		return &f.fp16
	case semconv.GPUFLOPPrecisionBf16:
		return &f.bf16
	case semconv.GPUFLOPPrecisionFp8:
		return &f.fp8
	case semconv.GPUFLOPPrecisionFp4:
		return &f.fp4
	case semconv.GPUFLOPPrecisionInt8:
		return &f.int8
	}
	return nil
}

func (f *flopPeaks) of(precision string) peak {
	if p := f.field(precision); p != nil {
		return *p
	}
	return peak{}
}

// take sets all rates of a row.
func (f *flopPeaks) take(r *peaks.FLOPRates, source peakSource) {
	for _, p := range peaks.Precisions() {
		f.field(p).set(r.Of(p), source)
	}
}

func (f *flopPeaks) scale(by float64) {
	for _, p := range peaks.Precisions() {
		f.field(p).scale(by)
	}
}
