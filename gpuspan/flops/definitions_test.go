// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

func TestElementwiseCountsEqualTheirDefinitions(t *testing.T) {
	m := &machine{}
	sigmoid := func(x float64) float64 { return m.div(1, m.add(1, m.exp(m.neg(x)))) }
	definitions := map[flops.Op]func(x float64){
		flops.Copy:      func(float64) {},
		flops.ReLU:      func(x float64) { m.max(x, 0) },
		flops.LeakyReLU: func(x float64) { m.max(x, m.mul(.01, x)) },
		flops.Sigmoid:   func(x float64) { sigmoid(x) },
		flops.SiLU:      func(x float64) { m.mul(x, sigmoid(x)) },
		flops.SwiGLU:    func(x float64) { m.mul(m.mul(x, sigmoid(x)), 3) },
		flops.GELU:      func(x float64) { m.mul(m.mul(.5, x), m.add(1, m.erf(m.div(x, math.Sqrt2)))) },
		flops.GELUTanh: func(x float64) {
			cube := m.mul(m.mul(m.mul(.044715, x), x), x)
			m.mul(m.mul(.5, x), m.add(1, m.tanh(m.mul(math.Sqrt(2/math.Pi), m.add(x, cube)))))
		},
		flops.FMA:       func(x float64) { m.add(m.mul(x, 2), 3) },
		flops.ScaledAdd: func(x float64) { m.add(m.mul(2, x), 3) },
		flops.Tanh:      func(x float64) { m.tanh(x) },
		flops.RSqrt:     func(x float64) { m.rsqrt(x) },
		flops.Div:       func(x float64) { m.div(x, 2) },
		flops.Neg:       func(x float64) { m.neg(x) },
		flops.Abs:       func(x float64) { m.max(x, -x) }, // one operation: negating the other operand is free
		flops.Add:       func(x float64) { m.add(x, 2) },
		flops.Sub:       func(x float64) { m.sub(x, 2) },
		flops.Mul:       func(x float64) { m.mul(x, 2) },
		flops.Max:       func(x float64) { m.max(x, 2) },
		flops.Min:       func(x float64) { m.max(x, 2) },
		flops.Exp:       func(x float64) { m.exp(x) },
		flops.Log:       func(x float64) { m.log(x) },
		flops.Sqrt:      func(x float64) { m.sqrt(x) },
		flops.Erf:       func(x float64) { m.erf(x) },
	}
	require.Zero(t, flops.Elementwise(flops.Op(len(definitions)), 1000, gpuspan.FP32),
		"the last operation is in the table")
	for op, f := range definitions {
		m.ops = 0
		for _, x := range numbers(1000) {
			f(x)
		}
		require.InDelta(t, m.ops, flops.Elementwise(op, 1000, gpuspan.FP32).FLOPs, 0, "operation %d", op)
	}
}

func TestReductionAndNormalizationCountsEqualTheirDefinitions(t *testing.T) {
	property.Check(t, func(t *property.T) {
		rows, n := property.IntRange(1, 5).Draw(t, "rows"), property.IntRange(1, 40).Draw(t, "n")
		x := numbers(n)
		m := &machine{}
		counted := func(f func()) float64 {
			m.ops = 0
			for range rows {
				f()
			}
			return float64(m.ops)
		}
		mean := func() float64 { return m.div(m.sum(x), float64(n)) }
		squares := func(of []float64) []float64 {
			s := make([]float64, n)
			for i, v := range of {
				s[i] = m.mul(v, v)
			}
			return s
		}
		variance := func() []float64 {
			mu, d := mean(), make([]float64, n)
			for i, v := range x {
				d[i] = m.sub(v, mu)
			}
			m.div(m.sum(squares(d)), float64(n))
			return d
		}
		reduce := func(r flops.Reduction) float64 { return flops.Reduce(r, rows, n, gpuspan.FP32).FLOPs }
		require.Equal(t, counted(func() { m.sum(x) }), reduce(flops.ReduceSum))
		require.Equal(t, counted(func() { m.largest(x) }), reduce(flops.ReduceMax))
		require.Equal(t, counted(func() { mean() }), reduce(flops.ReduceMean))
		require.Equal(t, counted(func() { m.sqrt(m.sum(squares(x))) }), reduce(flops.ReduceNorm))
		require.Equal(t, counted(func() { variance() }), reduce(flops.ReduceVar))

		require.Equal(t, counted(func() {
			top, e := m.largest(x), make([]float64, n)
			for i, v := range x {
				e[i] = m.exp(m.sub(v, top))
			}
			s := m.sum(e)
			for _, v := range e {
				m.div(v, s)
			}
		}), flops.Softmax(rows, n, gpuspan.FP32).FLOPs)

		layer := func(affine bool) func() {
			return func() {
				d := variance()
				r := m.rsqrt(m.add(1, 1e-5))
				for _, v := range d {
					y := m.mul(v, r)
					if affine {
						m.add(m.mul(y, 2), 3)
					}
				}
			}
		}
		require.Equal(t, counted(layer(false)), flops.LayerNorm(rows, n, false, gpuspan.FP32).FLOPs)
		require.Equal(t, counted(layer(true)), flops.LayerNorm(rows, n, true, gpuspan.FP32).FLOPs)
		require.Equal(t, counted(func() {
			r := m.rsqrt(m.add(m.div(m.sum(squares(x)), float64(n)), 1e-5))
			for _, v := range x {
				m.mul(m.mul(v, r), 2)
			}
		}), flops.RMSNorm(rows, n, gpuspan.FP32).FLOPs)
	})
}

func TestEmbeddingBagAddsWithinBags(t *testing.T) {
	property.Check(t, func(t *property.T) {
		bags := property.SliceOfN(property.IntRange(1, 6), 1, 8).Draw(t, "indices of each bag")
		dim := property.IntRange(1, 8).Draw(t, "dim")
		m, indices := &machine{}, 0
		for _, n := range bags {
			indices += n
			for range dim {
				m.sum(numbers(n))
			}
		}
		w := flops.EmbeddingBag(indices, len(bags), dim, 8, gpuspan.FP32)
		require.EqualValues(t, m.ops, w.FLOPs)
		require.EqualValues(t, 4*dim*len(bags), w.Written)
	})
	w := flops.Embedding(10, 128, 8, gpuspan.BF16)
	require.Equal(t, gpuspan.Work{Read: 10*128*2 + 80, Written: 10 * 128 * 2, Precision: gpuspan.BF16}, w)
}

func TestAttentionCountsThePairsThatAMaskLeaves(t *testing.T) {
	property.Check(t, func(t *property.T) {
		a := flops.AttentionShape{
			Batch: property.IntRange(1, 2).Draw(t, "batch"), Heads: 4,
			KVHeads: property.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "kv"),
			Queries: property.IntRange(1, 9).Draw(t, "q"), Keys: property.IntRange(1, 9).Draw(t, "k"),
			HeadDim: property.IntRange(1, 4).Draw(t, "d"), ValueDim: property.IntRange(1, 4).Draw(t, "v"),
			Mask: property.SampledFrom([]flops.Mask{flops.Full, flops.Causal}).Draw(t, "mask"),
		}
		forward, scores := 0, 0
		for range a.Batch * a.Heads {
			for q := range a.Queries {
				for k := range a.Keys {
					if a.Mask == flops.Causal && k > q+a.Keys-a.Queries {
						continue
					}
					for range a.HeadDim { // q·k
						forward, scores = forward+2, scores+2
					}
					for range a.ValueDim { // weight · v
						forward += 2
					}
				}
			}
		}
		require.EqualValues(t, forward, a.Forward(gpuspan.BF16).FLOPs)
		require.EqualValues(t, 2*forward, a.Backward(gpuspan.BF16, false).FLOPs)
		require.EqualValues(t, 2*forward+scores, a.Backward(gpuspan.BF16, true).FLOPs)
	})
}

func TestAttentionMatchesPublishedConventions(t *testing.T) {
	// FlashAttention's benchmark: 4 · batch · seq² · heads · dim forward, 2.5 times that backward,
	// half when causal.
	w := flops.Attention(4, 16, 4096, 4096, 64, flops.Full, gpuspan.FP16)
	require.Equal(t, 4.*4*4096*4096*16*64, w.FLOPs)
	full := flops.AttentionShape{Batch: 4, Heads: 16, Queries: 4096, Keys: 4096, HeadDim: 64}
	require.Equal(t, 2.5*w.FLOPs, full.Backward(gpuspan.FP16, true).FLOPs)
	causal := flops.Attention(4, 16, 4096, 4096, 64, flops.Causal, gpuspan.FP16)
	require.InEpsilon(t, w.FLOPs/2, causal.FLOPs, 1./4096)
	// Grouped queries: the same operations, an eighth of the keys and values.
	gqa := flops.AttentionShape{Batch: 1, Heads: 32, KVHeads: 4, Queries: 1, Keys: 1000, HeadDim: 128}
	require.Equal(t, flops.Attention(1, 32, 1, 1000, 128, flops.Full, gpuspan.BF16).FLOPs, gqa.Forward(gpuspan.BF16).FLOPs)
	require.EqualValues(t, 2*(32*128+2*4*1000*128), gqa.Forward(gpuspan.BF16).Read)
}

func TestSparseProductsCountStoredValues(t *testing.T) {
	property.Check(t, func(t *property.T) {
		rows, cols := property.IntRange(1, 8).Draw(t, "rows"), property.IntRange(1, 8).Draw(t, "cols")
		n := property.IntRange(1, 4).Draw(t, "columns of B")
		ops, nnz, touched := 0, 0, map[int]bool{}
		for range rows {
			for j := range cols {
				if !property.Bool().Draw(t, "stored") {
					continue
				}
				nnz++
				touched[j] = true
				for range n {
					ops += 2
				}
			}
		}
		s := flops.Sparse{Rows: rows, Cols: cols, NonZeros: nnz}
		csr := s.MulMatrix(n, gpuspan.FP64)
		s.Format = flops.COO
		coo := s.MulMatrix(n, gpuspan.FP64)
		require.EqualValues(t, ops, csr.FLOPs)
		require.EqualValues(t, ops, coo.FLOPs)
		require.LessOrEqual(t, int64(nnz*12+(rows+1)*4+len(touched)*n*8), csr.Read,
			"every stored value, index and touched element is read")
		require.EqualValues(t, 4*(nnz-rows-1), coo.Read-csr.Read)
		require.EqualValues(t, rows*n*8, csr.Written)
	})
	require.Equal(t, flops.MatMul(128, 64, 256, gpuspan.FP16).FLOPs/2,
		flops.Structured24(128, 64, 256, gpuspan.FP16).FLOPs)
	require.EqualValues(t, 128*128*2+128*256/2/4+256*64*2, flops.Structured24(128, 64, 256, gpuspan.FP16).Read)
	require.Zero(t, flops.Structured24(1, 1, 6, gpuspan.FP16))
}

// The radix-2 algorithm executed with real arithmetic: a butterfly is a complex product and two
// complex additions, 10 operations, N/2·log₂N times.
func TestFFTCountsTheRadix2Algorithm(t *testing.T) {
	for _, n := range []int{2, 4, 64, 1024} {
		m := &machine{}
		var fft func(n int)
		fft = func(n int) {
			if n == 1 {
				return
			}
			fft(n / 2)
			fft(n / 2)
			for range n / 2 {
				re := m.sub(m.mul(1, 2), m.mul(3, 4))
				im := m.add(m.mul(1, 4), m.mul(3, 2))
				m.add(1, re)
				m.add(1, im)
				m.sub(1, re)
				m.sub(1, im)
			}
		}
		fft(n)
		require.InDelta(t, m.ops, flops.FFT(1, gpuspan.FP32, n).FLOPs, 1e-6)
	}
	// Separable: rows, then columns.
	rows, cols := flops.FFT(32, gpuspan.FP32, 64), flops.FFT(64, gpuspan.FP32, 32)
	require.InDelta(t, rows.FLOPs+cols.FLOPs, flops.FFT(1, gpuspan.FP32, 32, 64).FLOPs, 1e-6)
	r := flops.RealFFT(1, gpuspan.FP32, 1024)
	require.Equal(t, flops.FFT(1, gpuspan.FP32, 1024).FLOPs/2, r.FLOPs)
	require.EqualValues(t, 4096, r.Read)
	require.EqualValues(t, 513*8, r.Written)
	require.Zero(t, flops.FFT(1, gpuspan.FP32))
	require.Zero(t, flops.RealFFT(1, gpuspan.FP32, 0))
}

func TestInvalidInputHasNoResultAndEmptyTensorsNoWork(t *testing.T) {
	for name, w := range map[string]gpuspan.Work{
		"matmul":      flops.MatMul(-1, 2, 3, gpuspan.FP32),
		"attention":   flops.Attention(1, 1, -1, 1, 1, flops.Full, gpuspan.FP32),
		"elementwise": flops.Elementwise(200, 5, gpuspan.FP32),
		"softmax":     flops.Softmax(0, 5, gpuspan.FP32),
		"sparse":      flops.Sparse{NonZeros: -1}.MulVector(gpuspan.FP32),
		"bag":         flops.EmbeddingBag(1, 2, 3, 8, gpuspan.FP32),
		"transformer": flops.Transformer{Layers: -1}.Decode(1, 1, gpuspan.FP32),
		"times":       flops.Times(-1, flops.MatMul(1, 1, 1, gpuspan.FP32)),
	} {
		require.Zero(t, w, name)
	}
	require.Zero(t, flops.MatMul(0, 5, 5, gpuspan.FP32).FLOPs)
	w := flops.MatMul(8, 8, 8, gpuspan.PrecisionUnset)
	require.Zero(t, w.Read, "bytes of an unknown precision are not known")
	require.EqualValues(t, 1024, w.FLOPs)
	require.EqualValues(t, math.MaxInt64, flops.MatMul(math.MaxInt32, math.MaxInt32, math.MaxInt32, gpuspan.FP64).Read)
	require.EqualValues(t, 8, flops.Elementwise(flops.Copy, 15, gpuspan.FP4).Read)
}
