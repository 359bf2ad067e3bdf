// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/internal/gputrace"
)

// Operators that move bytes: elementwise, reductions, normalisations, gathers, and those of vLLM, aiter and
// flash-attention whose shapes are recorded. Bytes are the compulsory traffic: each operand once, in its own type, and
// each result.
func init() {
	for name, ops := range map[string]float64{ // operations for each element of the result; see flops.Elementwise
		"copy_": 0, "clone": 0, "fill_": 0, "zero_": 0, "masked_fill_": 1, "where": 1,
		"neg": 1, "abs": 1, "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "tanh": 1, "erf": 1, "relu": 1, "relu_": 1,
		"sigmoid": 4, "silu": 5, "silu_": 5, "gelu": 5,
		"cos": 1, "sin": 1, "pow": 1, "reciprocal": 1, "clamp": 2, "clamp_min": 1, "clamp_min_": 1, "clamp_max": 1,
		"clamp_max_": 1, "threshold": 1, "leaky_relu": 2,
		"add": 1, "add_": 1, "sub": 1, "sub_": 1, "rsub": 1, "mul": 1, "mul_": 1, "div": 1, "div_": 1, "maximum": 1,
		"minimum": 1, "addcmul": 3, "addcmul_": 3,
		"addcdiv": 3, "addcdiv_": 3, "lerp": 3, "lerp_": 3, "eq": 1, "ne": 1, "lt": 1, "le": 1, "gt": 1, "ge": 1,
		"bitwise_and": 1, "bitwise_or": 1,
		"logical_and": 1, "logical_or": 1, "logical_not": 1, "threshold_backward": 1, "sigmoid_backward": 3,
		"tanh_backward": 3, "gelu_backward": 10, "silu_backward": 8,
	} {
		operators["aten::"+name] = func(in *inputs) gpuspan.Work { return elementwise(in, ops, strings.HasSuffix(name, "_")) }
	}
	for name, r := range map[string]flops.Reduction{
		"sum": flops.ReduceSum, "mean": flops.ReduceMean, "max": flops.ReduceMax, "min": flops.ReduceMax,
		"amax": flops.ReduceMax, "amin": flops.ReduceMax,
		"argmax": flops.ReduceMax, "argmin": flops.ReduceMax, "norm": flops.ReduceNorm,
		"linalg_vector_norm": flops.ReduceNorm, "var": flops.ReduceVar,
	} {
		operators["aten::"+name] = func(in *inputs) gpuspan.Work { return reduce(in, r) }
	}
	for name, rows := range map[string]struct {
		ops, passes float64 // for each element; tensors of the input's size that are read or written
		at          int     // of the input
	}{
		"aten::_softmax": {5, 2, 0}, "aten::_log_softmax": {5, 2, 0}, "aten::_softmax_backward_data": {4, 3, 0},
		"aten::_log_softmax_backward_data": {4, 3, 0},
		"aten::native_layer_norm":          {7, 2, 0}, "aten::native_group_norm": {7, 2, 0},
		"aten::native_batch_norm": {7, 2, 0},
		"aten::cudnn_batch_norm":  {7, 2, 0},
		"aten::miopen_batch_norm": {7, 2, 0}, "aten::_fused_rms_norm": {4, 2, 0},
		"aten::native_layer_norm_backward": {14, 3, 0},
		"aten::native_group_norm_backward": {14, 3, 0}, "aten::native_batch_norm_backward": {14, 3, 0},
		"aten::cudnn_batch_norm_backward":  {14, 3, 0},
		"aten::miopen_batch_norm_backward": {14, 3, 0}, "aten::_fused_rms_norm_backward": {10, 3, 0},
		"_C::rms_norm": {4, 2, 1}, "_C::fused_add_rms_norm": {5, 4, 0}, "aiter::rmsnorm2d_fwd": {4, 2, 0},
		"aiter::rms_norm": {4, 2, 0}, "aiter::layernorm2d_fwd": {7, 2, 0},
		"_C::static_scaled_fp8_quant": {1, 1.5, 1}, "_C::dynamic_scaled_fp8_quant": {2, 1.5, 1},
	} {
		operators[name] = func(in *inputs) gpuspan.Work { return rowwise(in, rows.at, rows.ops, rows.passes) }
	}
	for name, at := range map[string]int{
		"_C::silu_and_mul": 1, "_C::gelu_and_mul": 1, "_C::gelu_tanh_and_mul": 1,
		"aiter::silu_and_mul": 1, "aiter::gelu_and_mul": 1,
	} {
		operators[name] = func(in *inputs) gpuspan.Work { return gated(in, at) }
	}
	operators["aten::cat"] = concatenation
	operators["aten::embedding"] = func(in *inputs) gpuspan.Work { return gather(in, 0, 1) }
	operators["aten::index_select"] = func(in *inputs) gpuspan.Work { return gather(in, 0, 2) }
	operators["_C_cache_ops::reshape_and_cache_flash"] = func(in *inputs) gpuspan.Work { return moved(in, 0, 1) }
	operators["_C_cache_ops::reshape_and_cache"] = func(in *inputs) gpuspan.Work { return moved(in, 0, 1) }
	operators["_C::rotary_embedding"] = func(in *inputs) gpuspan.Work { return moved(in, 1, 2) }

	for _, name := range []string{
		"aiter::gemm_a8w8", "aiter::gemm_a8w8_CK", "aiter::gemm_a8w8_bpreshuffle",
		"aiter::gemm_a8w8_blockscale", "aiter::gemm_a16w16",
	} {
		operators[name] = linear
	}
	operators["vllm::rocm_unquantized_gemm"] = func(in *inputs) gpuspan.Work { return linear(in) }
	for name, causal := range map[string]int{
		"flash_attn::_flash_attn_forward": 5, "aiter::_flash_attn_forward": 5,
		"aiter::mha_fwd": 5, "aiter::fmha_v3_fwd": 5,
	} {
		operators[name] = func(in *inputs) gpuspan.Work { return flashAttention(in, 0, causal, false) }
	}
	operators["flash_attn::_flash_attn_backward"] = func(in *inputs) gpuspan.Work {
		return flashAttention(in, 1, 11,
			true)
	}
	operators["aiter::_flash_attn_backward"] = func(in *inputs) gpuspan.Work { return flashAttention(in, 1, 11, true) }
	for _, name := range []string{
		"vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "aiter::fused_moe_",
		"aiter::fused_moe",
	} {
		operators[name] = experts
	}
}

// size is the number of elements of input i, which is a tensor.
func (in *inputs) size(i int) (n int, ok bool) {
	if i >= len(in.dims) {
		return 0, false
	}
	s, ok := integers(in.dims[i])
	if !ok || len(s) == 0 {
		return 0, false
	}
	n = 1
	for _, d := range s {
		n = times(n, d)
	}
	return n, true
}

// width is the size of an element of input i in bytes; 0 where it is unknown or no tensor.
func (in *inputs) width(i int) int64 {
	if i >= len(in.types) {
		return 0
	}
	return gputrace.ElementSize(typeName(text(in.types[i])))
}

// typeName is a type as ElementSize knows it.
func typeName(t string) string {
	switch t {
	case "unsigned char":
		return "uint8"
	case "signed char":
		return "int8"
	case "c10::complex<float>":
		return "complexfloat"
	}
	return t
}

// elementwise has the result that all operands broadcast to, in the widest of their types. In place, and in copy_, the
// first operand is the result; copy_, fill_ and zero_ do not read it.
func elementwise(in *inputs, ops float64, inPlace bool) gpuspan.Work {
	var shape []int
	var read, wide int64
	first, operands := int64(0), 0
	for i := range in.dims {
		n, ok := in.size(i)
		w := in.width(i)
		if !ok {
			continue
		}
		if w == 0 {
			return gpuspan.Work{}
		}
		dims, _ := integers(in.dims[i])
		if shape, ok = broadcastShape(shape, dims); !ok {
			return gpuspan.Work{}
		}
		if operands == 0 {
			first = int64(n) * w
		}
		operands++
		read += int64(n) * w
		wide = max(wide, w)
	}
	n := 1
	for _, d := range shape {
		n = times(n, d)
	}
	if operands == 0 || n <= 0 {
		return gpuspan.Work{}
	}
	written := int64(n) * wide
	if inPlace {
		if written = first; ops == 0 { // the result is only written
			read -= first
		}
	}
	return gpuspan.Work{Read: read, Written: written, FLOPs: ops * float64(n), Precision: in.precision(0)}
}

func broadcastShape(a, b []int) ([]int, bool) {
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

// reduce takes a tensor and, as the second input, the dimensions; without their values the result is not known, and
// taken as one element, which changes the bytes by little.
func reduce(in *inputs, r flops.Reduction) gpuspan.Work {
	n, ok := in.size(0)
	w := in.width(0)
	if !ok || w == 0 || n == 0 {
		return gpuspan.Work{}
	}
	shape, _ := integers(in.dims[0])
	outputs := 1
	if dims, ok := reduced(in, len(shape)); ok {
		for i, d := range shape {
			if !dims[i] {
				outputs = times(outputs, d)
			}
		}
	}
	outputs = max(1, outputs)
	work := flops.Reduce(r, outputs, n/outputs, in.precision(0))
	work.Read, work.Written, work.Bytes = int64(n)*w, int64(outputs)*w, 0
	return work
}

// reduced reads the dimensions: "[-1]", "1"; an empty list is all.
func reduced(in *inputs, rank int) (dims []bool, ok bool) {
	if len(in.values) < 2 {
		return nil, false
	}
	list := strings.Trim(text(in.values[1]), "[] ")
	if list == "" {
		return nil, false
	}
	dims = make([]bool, rank)
	for word := range strings.SplitSeq(list, ",") {
		d, err := strconv.Atoi(strings.TrimSpace(word))
		if d < 0 {
			d += rank
		}
		if err != nil || d < 0 || d >= rank {
			return nil, false
		}
		dims[d] = true
	}
	return dims, true
}

// rowwise is so many operations for each element of input at, and so many tensors of its size read or written.
// Parameters and statistics are small beside them.
func rowwise(in *inputs, at int, ops, passes float64) gpuspan.Work {
	n, ok := in.size(at)
	w := in.width(at)
	if !ok || w == 0 {
		return gpuspan.Work{}
	}
	all := float64(n) * float64(w) * passes
	written := int64(n) * w
	return gpuspan.Work{
		Read: max(0, int64(all)-written), Written: min(written, int64(all)), FLOPs: ops * float64(n),
		Precision: in.precision(at),
	}
}

// gated is act(x)·y of the two halves of the rows of input at: six operations for each element of the result.
func gated(in *inputs, at int) gpuspan.Work {
	n, ok := in.size(at)
	w := in.width(at)
	if !ok || w == 0 {
		return gpuspan.Work{}
	}
	return gpuspan.Work{Read: int64(n) * w, Written: int64(n) / 2 * w, FLOPs: 3 * float64(n), Precision: in.precision(at)}
}

// concatenation reads and writes each tensor of the list that is input 0. The record does not hold the type of lists,
// which is taken from the first tensor where it is stated, and else not known.
func concatenation(in *inputs) gpuspan.Work {
	if len(in.dims) == 0 {
		return gpuspan.Work{}
	}
	w := in.width(0)
	if w == 0 {
		return gpuspan.Work{}
	}
	n := 0
	for _, t := range elements(nil, in.dims[0]) {
		size := 1
		s, ok := integers(t)
		if !ok {
			return gpuspan.Work{}
		}
		for _, d := range s {
			size = times(size, d)
		}
		n += size
	}
	return gpuspan.Work{Read: int64(n) * w, Written: int64(n) * w}
}

// gather takes rows of a table by the numbers in input index.
func gather(in *inputs, table, index int) gpuspan.Work {
	t := in.shapes(0, table, index)
	w, wi := in.width(table), in.width(index)
	if in.bad || w == 0 || wi == 0 || len(t[0]) < 2 {
		return gpuspan.Work{}
	}
	rows, _ := in.size(index)
	dim := 1
	for _, d := range t[0][1:] {
		dim = times(dim, d)
	}
	bytes := int64(times(rows, dim)) * w
	return gpuspan.Work{Read: bytes + int64(rows)*wi, Written: bytes}
}

// moved reads the tensors and writes as much.
func moved(in *inputs, at ...int) gpuspan.Work {
	var bytes int64
	for _, i := range at {
		n, ok := in.size(i)
		if !ok || in.width(i) == 0 {
			return gpuspan.Work{}
		}
		bytes += int64(n) * in.width(i)
	}
	return gpuspan.Work{Read: bytes, Written: bytes}
}

// flashAttention takes query, key and value of [batch, length, heads, dim], where input causal says whether it is.
func flashAttention(in *inputs, first, causal int, backward bool) gpuspan.Work {
	t := in.shapes(4, first, first+1, first+2)
	masked := in.flag(causal)
	if in.bad {
		return gpuspan.Work{}
	}
	q, k, v := t[0], t[1], t[2]
	a := flops.AttentionShape{
		Batch: q[0], Heads: q[2], KVHeads: k[2], Queries: q[1], Keys: k[1], HeadDim: q[3],
		ValueDim: v[3],
	}
	if masked {
		a.Mask = flops.Causal // from the last key, as these do
	}
	if backward {
		return a.Backward(in.precision(first), true)
	}
	return a.Forward(in.precision(first))
}

// experts takes tokens [T, H], gate and up projections [E, 2I, H], down projections [E, H, I], and then the weights or
// numbers [T, k] of the experts of each token: three products of H·I for each. As many experts are read as tokens can
// choose.
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
