// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

// The expected values are from the tests of PyTorch's FlopCounterMode,
// pytorch/test/test_flop_counter.py.

func TestProductCountsEqualPyTorchs(t *testing.T) {
	mm := func(m, n, k int) float64 { return flops.MatMul(m, n, k, gpuspan.FP32).FLOPs }
	bmm := func(b, m, n, k int) float64 { return flops.BatchedMatMul(b, m, n, k, gpuspan.FP32).FLOPs }
	require.EqualValues(t, 240, mm(4, 6, 5))
	require.EqualValues(t, 720, bmm(3, 4, 6, 5))
	// mm, addmm, matmul, an einsum and a linear layer, of which PyTorch does not count the bias.
	einsum := plan(t, "ab,bc->ac", []int{6, 7}, []int{7, 8}).Best.FLOPs
	require.EqualValues(t, 3012, mm(4, 6, 5)+mm(4, 6, 5)+mm(5, 7, 6)+einsum+flops.Linear(8, 9, 10, false,
		gpuspan.FP32).FLOPs)
	// (4×5 · 5×6) as seven batches · 6×7, then the gradients: the constant right-hand sides need
	// none.
	require.EqualValues(t, 5184, mm(4, 6, 5)+bmm(7, 4, 7, 6)+bmm(7, 4, 6, 7)+mm(4, 5, 6))
}

func TestConvolutionCountsEqualPyTorchs(t *testing.T) {
	counts := func(c flops.Conv, input bool) (f, b float64) {
		fw, err := c.Forward(gpuspan.FP32)
		require.NoError(t, err)
		bw, err := c.Backward(gpuspan.FP32, input)
		require.NoError(t, err)
		return fw.FLOPs, bw.FLOPs
	}
	f, _ := counts(flops.Conv{Batch: 2, In: 3, Out: 6, Input: []int{6, 6}, Kernel: []int{4, 4}, Padding: []int{1, 1}},
		true)
	require.EqualValues(t, 28800, f)
	f, _ = counts(flops.Conv{Batch: 2, In: 3, Out: 6, Input: []int{6}, Kernel: []int{4}, Padding: []int{1}}, true)
	require.EqualValues(t, 1440, f)
	f, b := counts(flops.Conv{Batch: 1, In: 1, Out: 1, Input: []int{2, 2}, Kernel: []int{2, 2}, Transposed: true}, true)
	require.Equal(t, []float64{32, 64}, []float64{f, b})
	f, b = counts(flops.Conv{Batch: 1, In: 1, Out: 1, Input: []int{2, 2}, Kernel: []int{1, 1}}, true)
	require.Equal(t, []float64{8, 16}, []float64{f, b})
	// Fifty steps of a first layer, whose input needs no gradient.
	f, b = counts(flops.Conv{
		Batch: 1, In: 4, Out: 8, Input: []int{30, 2}, Kernel: []int{2, 2}, Stride: []int{2, 2},
		Transposed: true,
	}, false)
	require.EqualValues(t, 1536000, 50*(f+b))

	// ResNet-18, forward and backward down to the image.
	layer := func(c flops.Conv) float64 { f, b := counts(c, true); return f + b }
	total := layer(conv(3, 64, 224, 7, 2, 3, 1))
	in, size := 64, 56
	for stage := range 4 {
		width := 64 << stage
		for block := range 2 {
			stride := 1
			if block == 0 && stage > 0 {
				stride = 2
				total += layer(conv(in, width, size, 1, stride, 0, 1))
			}
			first := conv(in, width, size, 3, stride, 1, 1)
			size /= stride
			second := conv(width, width, size, 3, 1, 1, 1)
			total += layer(first) + layer(second)
			in = width
		}
		if stage == 0 {
			f, b := counts(conv(64, 64, 56, 3, 1, 1, 1), true)
			require.EqualValues(t, 924844032, 4*f)
			require.EqualValues(t, 1849688064, 4*b)
		}
	}
	require.EqualValues(t, 10884440064, total+3*flops.Linear(1, 512, 1000, false, gpuspan.FP32).FLOPs)
}

// PyTorch counts every pair regardless of the mask; a fused backward pass recomputes the scores.
func TestAttentionCountsEqualPyTorchs(t *testing.T) {
	square := flops.AttentionShape{Batch: 4, Heads: 8, Queries: 128, Keys: 128, HeadDim: 64}
	require.EqualValues(t, 134217728, square.Forward(gpuspan.FP16).FLOPs)
	long := square
	long.Keys = 256
	f := long.Forward(gpuspan.FP16).FLOPs
	require.EqualValues(t, 268435456, f)
	require.EqualValues(t, 805306368, f+long.Backward(gpuspan.FP16, false).FLOPs)
	require.EqualValues(t, 939524096, f+long.Backward(gpuspan.FP16, true).FLOPs)
	grouped := flops.AttentionShape{Batch: 2, Heads: 32, KVHeads: 8, Queries: 128, Keys: 128, HeadDim: 64}
	all := grouped
	all.KVHeads = 32
	require.Equal(t, all.Forward(gpuspan.FP16).FLOPs, grouped.Forward(gpuspan.FP16).FLOPs)
}
