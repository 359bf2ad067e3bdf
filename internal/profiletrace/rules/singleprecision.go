// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/semconv"
)

// precision judges operators that no other finding claims and that compute in single or double
// precision without the engines for products that the device has for TF32 or half precision.
func (j *judge) precision(r *facts.Report, claimed map[string]bool, needed float64) {
	peaks := j.f.Peak.FLOPs
	name, fast := "tf32", peaks.Of("tf32")
	if fast == 0 {
		name, fast = "fp16", peaks.Of("fp16")
	}
	if fast < 2*peaks.Of("fp32") {
		return
	}
	var gain, alone, double float64
	var where []finding.Location
	for _, o := range r.Operators {
		single := o.Precision == "fp32" || o.Precision == "fp64"
		if claimed[o.Name] || !single || o.Bound != "compute" || o.Alone <= 0 || !product(o.Name) {
			continue
		}
		time := float64(o.Time)
		least := max(o.FLOPs/(reachable*fast), o.Bytes/j.f.Peak.MemoryBandwidth) * 1e9 // ns
		if least >= time {
			continue
		}
		claimed[o.Name] = true
		alone += needed * float64(o.Alone)
		gain += needed * float64(o.Alone) * (1 - least/time)
		if o.Precision == "fp64" {
			double += needed * float64(o.Alone)
		}
		where = append(where, finding.Location{Name: o.WithShapes(), In: o.Kernel, Time: o.Alone, Count: o.Calls})
	}
	if name == "tf32" {
		gained := 1 - peaks.Of("fp32")/(reachable*fast)
		named, locations := j.namedSingle(r, claimed, needed*gained)
		gain, alone, where = gain+named, alone+named/gained, append(where, locations...)
	}
	if gain == 0 {
		return
	}
	where = finding.Longest(where)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindSinglePrecision, Gain: time.Duration(gain), Where: where, Certainty: finding.Medium,
		Chain: []string{
			"products in single precision leave the tensor cores idle",
			fmt.Sprintf("%s computed for %s where %s would do in %s", j.device0(), finding.Duration(alone),
				finding.Duration(alone-gain),
				name),
		},
		Evidence: fmt.Sprintf("%.3g TFLOP/s at most in fp32, %.3g in %s; longest: %s", peaks.Of("fp32")/1e12, fast/1e12, name,
			finding.Clip(where[0].Name)),
	}
	if 2*double > alone {
		v.Certainty, v.Chain[0] = finding.Low, "products are in double precision, for which the device has fewer engines"
		v.Evidence = "longest: " + finding.Clip(where[0].Name)
		v.Remedy = "where double precision is not needed (NumPy makes it by default): float32 or less from the input on, " +
			"and " + remedyOf(v.Kind)
	}
	j.add(v)
}

// namedSingle returns the gain of kernels with unknown work whose names identify products in single
// precision (sgemm, of cuBLAS, CUTLASS and others), if each reaches the same share of the faster
// peak: part of their time.
func (j *judge) namedSingle(
	r *facts.Report, claimed map[string]bool, part float64,
) (gain float64, where []finding.Location) {
	if part <= 0 || slices.ContainsFunc(r.Operators, func(o facts.Operator) bool { return o.FLOPs > 0 }) {
		return 0, nil
	}
	for _, k := range r.ByKernel {
		if strings.Contains(k.Name, "sgemm") && vocabulary.PrecisionOf("fp32", k.Name) == "fp32" {
			gain += part * float64(k.Alone)
			where = append(where, finding.Location{Name: k.Name, Time: k.Alone, Count: k.Count})
		}
	}
	if gain < thresholdGain*float64(j.length) {
		return 0, nil
	}
	for _, o := range r.Operators {
		claimed[o.Name] = true
	}
	return gain, where
}
