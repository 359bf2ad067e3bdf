// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// maxInputs bounds the text of an operator's inputs: those above take hundreds of bytes.
const maxInputs = 1 << 14

// inputs holds dimensions, types and values of an operator's inputs, as raw JSON. A requested value
// that is missing, or not of the expected form, sets bad. It is reused for every operator.
type inputs struct {
	dims, types, values [][]byte
	bad                 bool
	untyped             int64 // elements that are read and written whose type is not recorded, as of lists of tensors
}

// work returns the work of an operator, from its inputs as the profiler records them: types,
// dimensions, and the values of scalars and lists. ok is false if they are insufficient.
func (in *inputs) work(count rule, types, dims, values []byte) (gpuspan.Work, bool) {
	if len(dims) > maxInputs || len(values) > maxInputs {
		return gpuspan.Work{}, false
	}
	in.bad, in.untyped = false, 0
	in.dims, in.types, in.values = elements(in.dims[:0], dims), elements(in.types[:0], types),
		elements(in.values[:0], values)
	w := count(in)
	return w, (w.FLOPs > 0 || w.Read+w.Written+in.untyped > 0) && !in.bad
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
		b = vocabulary.AppendShape(b, kind, dims)
	}
	return b
}

func elements(list [][]byte, array []byte) [][]byte {
	chromejson.Elements(array, func(v []byte) bool { list = append(list, v); return true })
	return list
}

// shape returns the dimensions of the tensor that is input i, which has at least one.
func (in *inputs) shape(i int) []int {
	if i < len(in.dims) {
		if s, ok := integers(in.dims[i]); ok && len(s) > 0 {
			return s
		}
	}
	in.bad = true
	return nil
}

// shapes returns the shapes of several tensors, which have n dimensions each (any number where n is
// 0).
func (in *inputs) shapes(n int, at ...int) [][]int {
	out := make([][]int, len(at))
	for i, k := range at {
		out[i] = in.shape(k)
		in.bad = in.bad || n > 0 && len(out[i]) != n
	}
	return out
}

// value returns the text of input i: "True", "1", "[1, 1]".
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

// list returns a parameter of n spatial dimensions; one number means all.
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

// times returns a product of dimensions; 0, which gives no FLOPs, if it exceeds any tensor.
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

// precision returns the precision of input i. float is fp32: whether TF32 was allowed is not in the
// file.
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

// size returns the number of elements of input i, which is a tensor.
func (in *inputs) size(i int) (n int, ok bool) {
	if i >= len(in.dims) {
		return 0, false
	}
	s, ok := integers(in.dims[i])
	if !ok || len(s) == 0 {
		return 0, false
	}
	return volume(s), true
}

// width returns the size of an element of input i in bytes; 0 if it is unknown or no tensor.
func (in *inputs) width(i int) int64 {
	if i >= len(in.types) {
		return 0
	}
	return vocabulary.ElementSize(typeName(text(in.types[i])))
}

// typeName returns a type as ElementSize knows it.
func typeName(t string) string {
	switch t {
	case "unsigned char":
		return "uint8"
	case "signed char":
		return "int8"
	case "c10::complex<float>":
		return "complexfloat"
	case "c10::complex<double>":
		return "complexdouble"
	}
	return t
}

// lists returns the tensors of a list that is input i.
func (in *inputs) lists(i int) (shapes [][]int) {
	if i >= len(in.dims) || i >= len(in.types) || text(in.types[i]) != "TensorList" {
		return nil
	}
	for _, t := range elements(nil, in.dims[i]) {
		s, ok := integers(t)
		in.bad = in.bad || !ok
		shapes = append(shapes, s)
	}
	return shapes
}

// listed returns the number of elements of all tensors of the list that is input i; one without
// dimensions has one.
func (in *inputs) listed(i int) (n int64) {
	for _, s := range in.lists(i) {
		n += int64(volume(s))
	}
	return n
}

func volume(shape []int) int {
	n := 1
	for _, d := range shape {
		n = times(n, d)
	}
	return n
}

// bytes returns the bytes of input i; 0 if it is absent or its type is unknown.
func (in *inputs) bytes(i int) int64 {
	n, _ := in.size(i)
	return int64(n) * in.width(i)
}

// number returns a parameter that is one whole number.
func (in *inputs) number(i int) int {
	n, ok := chromejson.Int([]byte(in.value(i)))
	if !ok || n < 0 || n > maxDimension {
		in.bad = true
		return 0
	}
	return int(n)
}
