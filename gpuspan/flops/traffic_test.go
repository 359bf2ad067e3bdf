// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

// traffic records which elements a definition accesses. Compulsory traffic counts each of them
// once.
type traffic struct{ read, written map[[7]int]bool }

func newTraffic() *traffic { return &traffic{map[[7]int]bool{}, map[[7]int]bool{}} }

// load reads an element of a tensor.
func (m *traffic) load(tensor int, at ...int) { m.read[element(tensor, at)] = true }

func (m *traffic) store(tensor int, at ...int) { m.written[element(tensor, at)] = true }

func element(tensor int, at []int) (e [7]int) {
	e[0] = tensor
	copy(e[1:], at)
	return e
}

func (m *traffic) assert(t require.TestingT, w gpuspan.Work, size int) {
	require.EqualValues(t, size*len(m.read), w.Read)
	require.EqualValues(t, size*len(m.written), w.Written)
}

func TestProductsMoveEachElementOnce(t *testing.T) {
	property.Check(t, func(t *property.T) {
		d := property.SliceOfN(property.IntRange(1, 5), 4, 4).Draw(t, "dimensions")
		x := newTraffic()
		for b := range d[0] {
			for i := range d[1] {
				for j := range d[2] {
					for k := range d[3] {
						x.load(0, b, i, k)
						x.load(1, b, k, j)
					}
					x.store(2, b, i, j)
				}
			}
		}
		x.assert(t, flops.BatchedMatMul(d[0], d[1], d[2], d[3], gpuspan.FP64), 8)
		x.assert(t, plan(t, "bik,bkj->bij", []int{d[0], d[1], d[3]}, []int{d[0], d[3], d[2]}).Best, 4)
	})
}

func TestConvolutionsMoveEachElementOnce(t *testing.T) {
	property.Check(t, func(t *property.T) {
		groups := property.IntRange(1, 3).Draw(t, "groups")
		in, out := property.IntRange(1, 2).Draw(t, "in"), property.IntRange(1, 3).Draw(t, "out")
		c := flops.Conv{
			Batch: property.IntRange(1, 2).Draw(t, "batch"), In: groups * in, Out: groups * out, Groups: groups,
			Input:  []int{property.IntRange(3, 6).Draw(t, "height"), 5},
			Kernel: []int{property.IntRange(1, 3).Draw(t, "kernel"), 2},
			Bias:   property.Bool().Draw(t, "bias"), Transposed: property.Bool().Draw(t, "transposed"),
		}
		size, err := c.Output()
		require.NoError(t, err)
		outer, inner := size, c.Input
		if c.Transposed {
			outer, inner = c.Input, size
		}
		x := newTraffic()
		for b := range c.Batch {
			for o := range c.Out {
				for i := range in {
					channel := o/out*in + i
					for y := range outer[0] {
						for z := range outer[1] {
							for ky := range c.Kernel[0] {
								for kz := range c.Kernel[1] {
									x.load(1, o, i, ky, kz)
									far, near := []int{y + ky, z + kz}, []int{y, z}
									require.Less(t, far[0], inner[0])
									require.Less(t, far[1], inner[1])
									if c.Transposed {
										far, near = near, far
									}
									x.load(0, b, channel, far[0], far[1])
									x.store(2, b, o, near[0], near[1])
								}
							}
						}
					}
				}
				if c.Bias {
					x.load(3, o)
				}
			}
		}
		w, err := c.Forward(gpuspan.FP32)
		require.NoError(t, err)
		x.assert(t, w, 4)
		// The gradients read the input, the weights and twice the output's gradient, and write the
		// input's, the weights' and the bias's.
		b, err := c.Backward(gpuspan.FP32, true)
		require.NoError(t, err)
		bias := int64(0)
		if c.Bias {
			bias = int64(4 * c.Out)
		}
		require.Equal(t, w.Read-bias+2*w.Written, b.Read)
		require.Equal(t, w.Read, b.Written)
	})
}

func TestAttentionMovesEachElementOnce(t *testing.T) {
	property.Check(t, func(t *property.T) {
		group := property.IntRange(1, 3).Draw(t, "queries of a head of keys")
		a := flops.AttentionShape{
			Batch: property.IntRange(1, 2).Draw(t, "batch"), KVHeads: property.IntRange(1, 2).Draw(t, "heads of keys"),
			Queries: property.IntRange(1, 3).Draw(t, "queries"), Keys: property.IntRange(3, 6).Draw(t, "keys"),
			HeadDim: property.IntRange(1, 3).Draw(t, "dim"), ValueDim: property.IntRange(1, 3).Draw(t, "value dim"),
			Mask: property.SampledFrom([]flops.Mask{flops.Full, flops.Causal}).Draw(t, "mask"),
		}
		a.Heads = group * a.KVHeads
		x := newTraffic()
		for b := range a.Batch {
			for h := range a.Heads {
				for q := range a.Queries {
					for k := range a.Keys {
						if a.Mask == flops.Causal && k > q+a.Keys-a.Queries {
							continue
						}
						for d := range a.HeadDim {
							x.load(0, b, h, q, d)
							x.load(1, b, h/group, k, d)
						}
						for d := range a.ValueDim {
							x.load(2, b, h/group, k, d)
							x.store(3, b, h, q, d)
						}
					}
				}
			}
		}
		x.assert(t, a.Forward(gpuspan.BF16), 2)
		// Backward reads the inputs of forward, the output and its gradient, and writes the
		// gradients of the inputs.
		w := a.Backward(gpuspan.BF16, true)
		require.EqualValues(t, 2*(len(x.read)+2*len(x.written)), w.Read)
		require.EqualValues(t, 2*len(x.read), w.Written)
	})
}

func TestRowsMoveEachElementOnce(t *testing.T) {
	const rows, n = 3, 8
	for name, c := range map[string]struct {
		w             gpuspan.Work
		read, written int64
	}{
		"fma":        {flops.Elementwise(flops.FMA, n, gpuspan.FP32), 4 * 3 * n, 4 * n},
		"swiglu":     {flops.Elementwise(flops.SwiGLU, n, gpuspan.BF16), 2 * 2 * n, 2 * n},
		"sum":        {flops.Reduce(flops.ReduceSum, rows, n, gpuspan.FP16), 2 * rows * n, 2 * rows},
		"softmax":    {flops.Softmax(rows, n, gpuspan.FP32), 4 * rows * n, 4 * rows * n},
		"layer norm": {flops.LayerNorm(rows, n, true, gpuspan.FP32), 4 * (rows*n + 2*n), 4 * rows * n},
		"rms norm":   {flops.RMSNorm(rows, n, gpuspan.FP32), 4 * (rows*n + n), 4 * rows * n},
		"fft":        {flops.FFT(rows, gpuspan.FP32, n), 8 * rows * n, 8 * rows * n},
		"real fft":   {flops.RealFFT(rows, gpuspan.FP32, n), 4 * rows * n, 8 * rows * (n/2 + 1)},
		"linear":     {flops.Linear(rows, n, 5, true, gpuspan.FP32), 4 * (rows*n + 5*n + 5), 4 * rows * 5},
	} {
		require.Equal(t, c.read, c.w.Read, name)
		require.Equal(t, c.written, c.w.Written, name)
	}
}
