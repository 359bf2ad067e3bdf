// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// operators are those of PyTorch whose FLOPs follow from what the profiler records of their inputs. Some call each
// other (linear calls addmm): of nested ones a sum takes the outermost only. Left out are those of which the record
// does not say enough: einsum (its equation is not recorded; the products that it calls are), grouped products (group
// sizes lie on the device), scaled_dot_product_attention itself (the kernel it chooses decides whether masked pairs are
// computed).
var operators = map[string]func(*inputs) gpuspan.Work{
	"aten::mm":                func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::bmm":               func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::matmul":            func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::mv":                func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::dot":               func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::_int_mm":           func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::_scaled_mm":        func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::addmm":             func(in *inputs) gpuspan.Work { return product(in, 1) },
	"aten::_addmm_activation": func(in *inputs) gpuspan.Work { return product(in, 1) },
	"aten::addbmm":            func(in *inputs) gpuspan.Work { return product(in, 1) },
	"aten::baddbmm":           func(in *inputs) gpuspan.Work { return product(in, 1) },
	"aten::addmv":             func(in *inputs) gpuspan.Work { return product(in, 1) },
	"aten::linear":            linear,

	"aten::convolution":          convolution,
	"aten::_convolution":         convolution,
	"aten::convolution_backward": convolutionBackward,

	"aten::_scaled_dot_product_flash_attention":         func(in *inputs) gpuspan.Work { return attention(in, 4) },
	"aten::_scaled_dot_product_flash_attention_for_cpu": func(in *inputs) gpuspan.Work { return attention(in, 4) },
	"aten::_scaled_dot_product_efficient_attention":     func(in *inputs) gpuspan.Work { return attention(in, 6) },
	"aten::_scaled_dot_product_cudnn_attention":         func(in *inputs) gpuspan.Work { return attention(in, 6) },
	"aten::_scaled_dot_product_flash_attention_backward": func(in *inputs) gpuspan.Work {
		return attentionBackward(in,
			11)
	},
	"aten::_scaled_dot_product_efficient_attention_backward": func(in *inputs) gpuspan.Work {
		return attentionBackward(in,
			11)
	},
	"aten::_scaled_dot_product_cudnn_attention_backward": func(in *inputs) gpuspan.Work {
		return attentionBackward(in,
			14)
	},
}

// maxInputs bounds the text of an operator's inputs: those above take hundreds of bytes.
const maxInputs = 1 << 14

// inputs are dimensions, types and values of an operator's inputs, as raw JSON. What is asked of them and not there, or
// not of the form that is asked for, sets bad. It is used again for every operator.
type inputs struct {
	dims, types, values [][]byte
	bad                 bool
}

// work is what an operator computes, from its inputs as the profiler records them: types, dimensions, and the values of
// scalars and lists. It is not ok where they do not say enough.
func (in *inputs) work(count func(*inputs) gpuspan.Work, types, dims, values []byte) (gpuspan.Work, bool) {
	if len(dims) > maxInputs || len(values) > maxInputs {
		return gpuspan.Work{}, false
	}
	in.bad = false
	in.dims, in.types, in.values = elements(in.dims[:0], dims), elements(in.types[:0], types),
		elements(in.values[:0], values)
	w := count(in)
	return w, (w.FLOPs > 0 || w.Read+w.Written > 0) && !in.bad
}

// signature appends the shapes of the inputs that are tensors: "bf16[64,128] f32[128]".
func (in *inputs) signature(b []byte) []byte {
	for i, dims := range in.dims {
		if len(dims) < 3 || dims[0] != '[' || bytes.IndexByte(dims[1:], '[') >= 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ' ')
		}
		kind := ""
		if i < len(in.types) {
			kind = text(in.types[i])
		}
		b = gputrace.AppendShape(b, kind, dims)
	}
	return b
}

func elements(list [][]byte, array []byte) [][]byte {
	chromejson.Elements(array, func(v []byte) bool { list = append(list, v); return true })
	return list
}

// shape is the dimensions of the tensor that is input i, which has at least one.
func (in *inputs) shape(i int) []int {
	if i < len(in.dims) {
		if s, ok := integers(in.dims[i]); ok && len(s) > 0 {
			return s
		}
	}
	in.bad = true
	return nil
}

// shapes are those of several tensors, which have n dimensions each (any number where n is 0).
func (in *inputs) shapes(n int, at ...int) [][]int {
	out := make([][]int, len(at))
	for i, k := range at {
		out[i] = in.shape(k)
		in.bad = in.bad || n > 0 && len(out[i]) != n
	}
	return out
}

// value is the text of input i: "True", "1", "[1, 1]".
func (in *inputs) value(i int) string {
	if i < len(in.values) {
		if s := text(in.values[i]); s != "" {
			return s
		}
	}
	in.bad = true
	return ""
}

func (in *inputs) flag(i int) bool {
	v := in.value(i)
	in.bad = in.bad || v != "True" && v != "False"
	return v == "True"
}

// list is a parameter of n spatial dimensions; one number stands for all.
func (in *inputs) list(i, n int) []int {
	v, ok := integers([]byte(in.value(i)))
	in.bad = in.bad || !ok
	if len(v) == 1 {
		return slices.Repeat(v, n)
	}
	return v
}

// maxDimension keeps products of two within int.
const maxDimension = 1 << 30

// times is a product of dimensions; 0, which gives no FLOPs, where it is beyond what a tensor holds.
func times(a, b int) int {
	if b != 0 && a > (1<<60)/b {
		return 0
	}
	return a * b
}

// integers reads [1, 2]; an array of anything else is not ok.
func integers(array []byte) (list []int, ok bool) {
	ok = len(array) > 0 && array[0] == '['
	chromejson.Elements(array, func(v []byte) bool {
		n, is := chromejson.Int(v)
		ok = ok && is && n >= 0 && n <= maxDimension
		list = append(list, int(n))
		return ok
	})
	return list, ok
}

// precision is that of input i. float is fp32: whether TF32 was allowed is not in the file.
func (in *inputs) precision(i int) gpuspan.Precision {
	if i >= len(in.types) {
		return gpuspan.PrecisionUnset
	}
	switch name := text(in.types[i]); {
	case name == "double":
		return gpuspan.FP64
	case name == "float":
		return gpuspan.FP32
	case name == "c10::Half":
		return gpuspan.FP16
	case name == "c10::BFloat16":
		return gpuspan.BF16
	case strings.HasPrefix(name, "c10::Float8"):
		return gpuspan.FP8
	case name == "signed char":
		return gpuspan.INT8
	}
	return gpuspan.PrecisionUnset
}

// product is that of inputs i and i+1 by the rules of torch.matmul: vectors, matrices, and batches of them, where a
// dimension of 1 repeats.
func product(in *inputs, i int) gpuspan.Work {
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
	batch, ok := broadcast(a[:max(0, len(a)-2)], b[:max(0, len(b)-2)])
	if !ok || k != rows {
		return gpuspan.Work{}
	}
	w := flops.BatchedMatMul(batch, m, n, k, in.precision(i))
	if i > 0 { // what is added: as many elements as the result, fewer bytes where it is broadcast
		w.FLOPs += float64(batch) * float64(m) * float64(n)
		if added, ok := in.size(0); ok {
			w.Read += int64(added) * in.width(0)
		}
	}
	return w
}

// broadcast is the number of matrices in a batch, by torch's rules.
func broadcast(a, b []int) (n int, ok bool) {
	n = 1
	for i := 1; i <= max(len(a), len(b)); i++ {
		x, y := 1, 1
		if i <= len(a) {
			x = a[len(a)-i]
		}
		if i <= len(b) {
			y = b[len(b)-i]
		}
		if x != y && x != 1 && y != 1 {
			return 0, false
		}
		n = times(n, max(x, y))
	}
	return n, true
}

// linear takes an input of [..., in], a weight of [out, in] and a bias of [out] or none.
func linear(in *inputs) gpuspan.Work {
	t := in.shapes(0, 0, 1)
	if in.bad || len(t[1]) != 2 {
		return gpuspan.Work{}
	}
	x, w := t[0], t[1]
	rows := 1
	for _, d := range x[:len(x)-1] {
		rows = times(rows, d)
	}
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

// attention takes query, key and value of [batch, heads, length, dim], and at index causal whether it is.
func attention(in *inputs, causal int) gpuspan.Work {
	a := attentionShape(in, 0, causal)
	return a.Forward(in.precision(0))
}

// attentionBackward has the gradient of the output before them, and computes the scores again.
func attentionBackward(in *inputs, causal int) gpuspan.Work {
	a := attentionShape(in, 1, causal)
	return a.Backward(in.precision(1), true)
}

func attentionShape(in *inputs, first, causal int) flops.AttentionShape {
	t := in.shapes(4, first, first+1, first+2)
	masked := in.flag(causal)
	if in.bad {
		return flops.AttentionShape{}
	}
	q, k, v := t[0], t[1], t[2]
	a := flops.AttentionShape{
		Batch: q[0], Heads: q[1], KVHeads: k[1], Queries: q[2], Keys: k[2], HeadDim: q[3], ValueDim: v[3],
	}
	if masked {
		a.Mask = flops.Causal
		in.bad = a.Queries != a.Keys // torch masks from the first key, flops.Causal from the last: equal in squares only
	}
	return a
}

// convolution takes input, weight, bias, stride, padding, dilation, transposed, output padding, groups.
func convolution(in *inputs) gpuspan.Work {
	c := conv(in, 0, 3)
	if in.bad {
		return gpuspan.Work{}
	}
	w, err := c.Forward(in.precision(0))
	in.bad = err != nil
	return w
}

// convolutionBackward takes gradient, input, weight, sizes of the bias, then as convolution, and which gradients of
// input, weight and bias are wanted.
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

// conv has its input at index i, the weight behind it, and its parameters from index stride on.
func conv(in *inputs, i, stride int) flops.Conv {
	groups, ok := chromejson.Int([]byte(in.value(stride + 5)))
	if in.bad { // files of before 2023 have no values
		return flops.Conv{}
	}
	x, w := in.shape(i), in.shape(i+1)
	if in.bad = in.bad || len(x) < 3 || len(x) != len(w) || !ok || groups < 1 || groups > maxDimension; in.bad {
		return flops.Conv{}
	}
	n := len(x) - 2
	c := flops.Conv{
		Batch: x[0], In: x[1], Out: w[0], Input: x[2:], Kernel: w[2:], Groups: int(groups),
		Stride: in.list(stride, n), Padding: in.list(stride+1, n), Dilation: in.list(stride+2, n),
	}
	if c.Transposed = in.flag(stride + 3); c.Transposed {
		c.Out, c.OutputPadding = times(w[1], c.Groups), in.list(stride+4, n)
	}
	return c
}
