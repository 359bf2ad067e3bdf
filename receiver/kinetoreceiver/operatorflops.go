// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

// operatorWork is what an operator of PyTorch computes, from the shapes of its inputs. Known are those that do the work
// themselves (mm, addmm, bmm, baddbmm, convolution, the fused attentions), not those that call them (linear, matmul), so
// that a sum over operators counts nothing twice. Of attention the whole product is counted, causal or not, for the
// shapes do not say.
func operatorWork(name, types, dims, concrete string) (gpuspan.Work, bool) {
	count, ok := operators[name]
	if !ok {
		return gpuspan.Work{}, false
	}
	in := inputs{precision: precisionOf(types)}
	if len(dims) > 1<<14 || json.Unmarshal([]byte(dims), &in.raw) != nil {
		return gpuspan.Work{}, false
	}
	_ = json.Unmarshal([]byte(concrete), &in.values)
	w := count(&in)
	return w, w.FLOPs > 0 && !in.bad
}

var operators = map[string]func(*inputs) gpuspan.Work{
	"aten::mm":      func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::addmm":   func(in *inputs) gpuspan.Work { return product(in, 1) },
	"aten::bmm":     func(in *inputs) gpuspan.Work { return product(in, 0) },
	"aten::baddbmm": func(in *inputs) gpuspan.Work { return product(in, 1) },

	"aten::convolution": convolution,

	"aten::_scaled_dot_product_flash_attention":     attention,
	"aten::_scaled_dot_product_efficient_attention": attention,
	"aten::_scaled_dot_product_cudnn_attention":     attention,
}

// inputs are the dimensions and scalar values of an operator's inputs.
type inputs struct {
	raw       []json.RawMessage
	values    []string
	precision gpuspan.Precision
	bad       bool
}

// shape is the dimensions of input i; in.bad is set unless there are n of them (any number where n is 0).
func (in *inputs) shape(i, n int) []int {
	var s []int
	if i >= len(in.raw) || json.Unmarshal(in.raw[i], &s) != nil || len(s) == 0 || n > 0 && len(s) != n {
		in.bad = true
		return make([]int, max(n, 3))
	}
	return s
}

// list is the value of input i, as "[1, 1]".
func (in *inputs) list(i int) []int {
	if i >= len(in.values) {
		in.bad = true
		return nil
	}
	var v []int
	if json.Unmarshal([]byte(in.values[i]), &v) != nil {
		in.bad = true
	}
	return v
}

func product(in *inputs, first int) gpuspan.Work {
	a, b := in.shape(first, 0), in.shape(first+1, 0)
	switch {
	case len(a) == 2 && len(b) == 2 && a[1] == b[0]:
		return flops.MatMul(a[0], b[1], a[1], in.precision)
	case len(a) == 3 && len(b) == 3 && a[0] == b[0] && a[2] == b[1]:
		return flops.BatchedMatMul(a[0], a[1], b[2], a[2], in.precision)
	}
	return gpuspan.Work{}
}

// attention takes query, key and value of [batch, heads, length, dim].
func attention(in *inputs) gpuspan.Work {
	q, k := in.shape(0, 4), in.shape(1, 4)
	if in.bad {
		return gpuspan.Work{}
	}
	return flops.Attention(q[0], q[1], q[2], k[2], q[3], flops.Full, in.precision)
}

// convolution takes input, weight, bias, stride, padding, dilation, transposed, output padding, groups.
func convolution(in *inputs) gpuspan.Work {
	x, w := in.shape(0, 0), in.shape(1, 0)
	if len(x) < 3 || len(x) != len(w) || len(in.values) < 9 {
		return gpuspan.Work{}
	}
	groups, err := strconv.Atoi(in.values[8])
	if err != nil || groups < 1 {
		return gpuspan.Work{}
	}
	c := flops.Conv{
		Batch: x[0], In: x[1], Out: w[0], Input: x[2:], Kernel: w[2:], Groups: groups,
		Stride: in.list(3), Padding: in.list(4), Dilation: in.list(5),
	}
	if c.Transposed = in.values[6] == "True"; c.Transposed {
		c.Out, c.OutputPadding = w[1]*groups, in.list(7)
	}
	if in.bad {
		return gpuspan.Work{}
	}
	work, err := c.Forward(in.precision)
	if err != nil {
		return gpuspan.Work{}
	}
	return work
}

// precisionOf is that of the first tensor. float is fp32: whether TF32 was allowed is not in the file.
func precisionOf(types string) gpuspan.Precision {
	var t []string
	if json.Unmarshal([]byte(types), &t) != nil {
		return gpuspan.PrecisionUnset
	}
	for _, name := range t {
		switch {
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
		}
	}
	return gpuspan.PrecisionUnset
}
