// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

// Rules of products, convolutions and attention.

// product returns the product of inputs i and i+1 by the rules of torch.matmul: vectors, matrices,
// and batches of them, where a dimension of 1 repeats. The input added is added to it; -1: nothing.
func product(i, added int) rule {
	return func(in *inputs) gpuspan.Work {
		t := in.shapes(0, i, i+1)
		if in.bad {
			return gpuspan.Work{}
		}
		a, b := t[0], t[1]
		m, n := 1, 1
		if len(a) > 1 {
			m = a[len(a)-2]
		}
		k, rows := a[len(a)-1], b[0]
		if len(b) > 1 {
			rows, n = b[len(b)-2], b[len(b)-1]
		}
		batches, ok := broadcast(a[:max(0, len(a)-2)], b[:max(0, len(b)-2)])
		if !ok || k != rows {
			return gpuspan.Work{}
		}
		batch := volume(batches)
		w := flops.BatchedMatMul(batch, m, n, k, in.precision(i))
		if added >= 0 { // as many elements as the result, fewer bytes where it is broadcast
			w.FLOPs += float64(batch) * float64(m) * float64(n)
			w.Read += in.bytes(added)
		}
		return w
	}
}

// broadcast returns the shape that two shapes have together, by torch's rules.
func broadcast(a, b []int) ([]int, bool) {
	out := make([]int, max(len(a), len(b)))
	for i := 1; i <= len(out); i++ {
		x, y := 1, 1
		if i <= len(a) {
			x = a[len(a)-i]
		}
		if i <= len(b) {
			y = b[len(b)-i]
		}
		if x != y && x != 1 && y != 1 {
			return nil, false
		}
		out[len(out)-i] = max(x, y)
		if x == 0 || y == 0 {
			out[len(out)-i] = 0
		}
	}
	return out, true
}

// linear takes an input of [..., in], a weight of [out, in] and a bias of [out] or none.
func linear(in *inputs) gpuspan.Work {
	t := in.shapes(0, 0, 1)
	if in.bad || len(t[1]) != 2 {
		return gpuspan.Work{}
	}
	x, w := t[0], t[1]
	rows := volume(x[:len(x)-1])
	if x[len(x)-1] != w[1] {
		return gpuspan.Work{}
	}
	work := flops.MatMul(rows, w[0], w[1], in.precision(0))
	if bias, ok := in.size(2); ok && bias == w[0] {
		work.FLOPs += float64(rows) * float64(bias)
		work.Read += int64(bias) * in.width(2)
	}
	return work
}

// grouped takes rows [T, K] and matrices [E, K, N]: each row is multiplied by its group's matrix,
// whatever the groups' sizes are. As many matrices are read as there can be groups.
func grouped(i int) rule {
	return func(in *inputs) gpuspan.Work {
		t := in.shapes(0, i, i+1)
		if in.bad || len(t[0]) != 2 || len(t[1]) != 3 || t[0][1] != t[1][1] {
			return gpuspan.Work{}
		}
		a, b := t[0], t[1]
		w := flops.MatMul(a[0], b[2], a[1], in.precision(i))
		w.Read += int64(min(b[0], a[0])-1) * int64(times(b[1], b[2])) * in.width(i+1)
		return w
	}
}

// attention takes query, key and value of [batch, heads, length, dim], and at index causal whether
// it is.
func attention(causal int) rule {
	return func(in *inputs) gpuspan.Work { return torchAttention(in, 0, causal).Forward(in.precision(0)) }
}

// attentionBackward returns the gradient of the output before them, and computes the scores again.
func attentionBackward(causal int) rule {
	return func(in *inputs) gpuspan.Work { return torchAttention(in, 1, causal).Backward(in.precision(1), true) }
}

// torchAttention masks from the first key, flops.Causal from the last: they are equal in squares
// only.
func torchAttention(in *inputs, first, causal int) flops.AttentionShape {
	a := attentionShape(in, first, causal, 1, 2)
	in.bad = in.bad || a.Mask == flops.Causal && a.Queries != a.Keys
	return a
}

// flashAttention takes query, key and value of [batch, length, heads, dim], and at index causal
// whether it is: from the last key.
func flashAttention(first, causal int, backward bool) rule {
	return func(in *inputs) gpuspan.Work {
		a := attentionShape(in, first, causal, 2, 1)
		if backward {
			return a.Backward(in.precision(first), true)
		}
		return a.Forward(in.precision(first))
	}
}

// attentionShape returns the shape of query, key and value, the inputs from first on, whose heads
// and lengths are at the given axes of four.
func attentionShape(in *inputs, first, causal, heads, length int) flops.AttentionShape {
	t := in.shapes(4, first, first+1, first+2)
	masked := in.flag(causal)
	if in.bad {
		return flops.AttentionShape{}
	}
	q, k, v := t[0], t[1], t[2]
	a := flops.AttentionShape{
		Batch: q[0], Heads: q[heads], KVHeads: k[heads], Queries: q[length], Keys: k[length], HeadDim: q[3], ValueDim: v[3],
	}
	if masked {
		a.Mask = flops.Causal
	}
	return a
}

// packed takes query, key and value of [tokens, heads, dim], where sequences begin (one more than
// there are), and the longest of queries and keys. Only where all are as long as the longest are
// the lengths known. Without sequences it is flashAttention.
func packed(causal int) rule {
	return func(in *inputs) gpuspan.Work {
		if n, ok := in.size(0); !ok || n == 0 || len(in.shape(0)) != 3 {
			in.bad = false
			return flashAttention(0, causal, false)(in)
		}
		t := in.shapes(3, 0, 1, 2)
		starts, masked := in.shapes(1, 3, 4), in.flag(causal)
		queries, keys := in.number(5), in.number(6)
		if in.bad {
			return gpuspan.Work{}
		}
		batch := starts[0][0] - 1
		q, k, v := t[0], t[1], t[2]
		if batch < 1 || q[0] != times(batch, queries) || k[0] != times(batch, keys) {
			return gpuspan.Work{}
		}
		a := flops.AttentionShape{
			Batch: batch, Heads: q[1], KVHeads: k[1], Queries: queries, Keys: keys, HeadDim: q[2], ValueDim: v[2],
		}
		if masked {
			a.Mask = flops.Causal
		}
		return a.Forward(in.precision(0))
	}
}

// experts takes tokens [T, H], gate and up projections [E, 2I, H], down projections [E, H, I], and
// then the weights or numbers [T, k] of the experts of each token: three products of H·I for each.
// As many experts are read as tokens can choose.
func experts(in *inputs) gpuspan.Work {
	t := in.shapes(0, 0, 1, 2, 3)
	if in.bad || len(t[0]) != 2 || len(t[1]) != 3 || len(t[2]) != 3 || len(t[3]) != 2 {
		return gpuspan.Work{}
	}
	x, up, down, chosen := t[0], t[1], t[2], t[3]
	if chosen[0] != x[0] || up[2] != x[1] || down[1] != x[1] {
		return gpuspan.Work{}
	}
	pairs := times(chosen[0], chosen[1])
	weights := up[1]*up[2] + down[1]*down[2] // of one expert
	read := int64(min(up[0], pairs))*int64(weights)*in.width(1) + int64(x[0]*x[1])*in.width(0)
	return gpuspan.Work{
		FLOPs: 2 * float64(pairs) * float64(weights), Read: read, Written: int64(x[0]*x[1]) * in.width(0),
		Precision: in.precision(1),
	}
}

// convolution takes input, weight, bias, stride, padding, dilation, transposed, output padding,
// groups.
func convolution(in *inputs) gpuspan.Work {
	c := conv(in, 0, 3)
	if in.bad {
		return gpuspan.Work{}
	}
	w, err := c.Forward(in.precision(0))
	in.bad = err != nil
	return w
}

// convolutionBackward takes gradient, input, weight, sizes of the bias, then as convolution, and
// which gradients of input, weight and bias are wanted.
func convolutionBackward(in *inputs) gpuspan.Work {
	c := conv(in, 1, 4)
	wanted := in.value(10)
	if in.bad {
		return gpuspan.Work{}
	}
	p := in.precision(1)
	forward, err := c.Forward(p)
	in.bad = err != nil
	var w gpuspan.Work
	for i, want := range strings.Split(strings.Trim(wanted, "[]"), ",") {
		if strings.TrimSpace(want) == "True" && i < 2 { // each gradient is as much work as the forward pass
			w = flops.Sum(w, forward)
		}
	}
	return w
}

// conv returns a convolution with its input at index i, the weight behind it, and its parameters
// from index stride on.
func conv(in *inputs, i, stride int) flops.Conv {
	groups := in.number(stride + 5)
	if in.bad { // files of before 2023 have no values
		return flops.Conv{}
	}
	x, w := in.shape(i), in.shape(i+1)
	if in.bad = in.bad || len(x) < 3 || len(x) != len(w) || groups < 1; in.bad {
		return flops.Conv{}
	}
	n := len(x) - 2
	c := flops.Conv{
		Batch: x[0], In: x[1], Out: w[0], Input: x[2:], Kernel: w[2:], Groups: groups,
		Stride: in.list(stride, n), Padding: in.list(stride+1, n), Dilation: in.list(stride+2, n),
	}
	if c.Transposed = in.flag(stride + 3); c.Transposed {
		c.Out, c.OutputPadding = times(w[1], c.Groups), in.list(stride+4, n)
	}
	return c
}
