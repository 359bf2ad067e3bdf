// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// ElementSize is the size of one element in bytes: 8, 4 (also TF32, which is stored as FP32), 2, 1 or, for FP4, 0.5.
// It is 0 when the precision is not stated, and bytes then stay unstated too.
func ElementSize(p gpuspan.Precision) float64 {
	switch p {
	case gpuspan.FP64:
		return 8
	case gpuspan.FP32, gpuspan.TF32:
		return 4
	case gpuspan.FP16, gpuspan.BF16:
		return 2
	case gpuspan.FP8, gpuspan.INT8:
		return 1
	case gpuspan.FP4:
		return 0.5
	}
	return 0
}

// work makes Work of operations and of elements read and written.
func work(ops, read, written float64, p gpuspan.Precision) gpuspan.Work {
	return bytes(ops, read*ElementSize(p), written*ElementSize(p), p)
}

func bytes(ops, read, written float64, p gpuspan.Precision) gpuspan.Work {
	return gpuspan.Work{FLOPs: ops, Read: whole(read), Written: whole(written), Precision: p}
}

// whole rounds bytes up: half an element of FP4 still occupies one.
func whole(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Ceil(v))
}

// invalid reports whether any dimension is negative.
func invalid(dims ...int) bool { return slices.ContainsFunc(dims, func(d int) bool { return d < 0 }) }

func empty(dims ...int) bool { return slices.Contains(dims, 0) }

// Sum adds works up, as of the parts of a layer. Bytes are the sum too, so results that a next part reads count twice,
// as they do when the parts are separate kernels. Precision is that of the part with the most operations.
func Sum(works ...gpuspan.Work) gpuspan.Work {
	var s gpuspan.Work
	most := -1.0
	for _, w := range works {
		s.Read += w.Read
		s.Written += w.Written
		s.Bytes += w.Bytes
		s.Items += w.Items
		s.FLOPs += w.FLOPs
		if w.FLOPs > most {
			most, s.Precision = w.FLOPs, w.Precision
		}
	}
	return s
}

// Times is n runs of a work, as of n equal layers.
func Times(n int, w gpuspan.Work) gpuspan.Work {
	if n < 0 {
		return gpuspan.Work{}
	}
	k := int64(n)
	return gpuspan.Work{
		Read: k * w.Read, Written: k * w.Written, Bytes: k * w.Bytes, Items: k * w.Items,
		FLOPs: float64(n) * w.FLOPs, Precision: w.Precision,
	}
}
