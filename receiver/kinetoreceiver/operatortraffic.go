// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

// Rules of operators that read and write whole tensors.

// elementwise returns the result that all operands broadcast to, in the widest of their types. In
// place the first operand is the result, which copy_, fill_ and zero_ do not read. If no operand
// has dimensions there is one element.
func elementwise(ops float64, tensors int, inPlace bool) rule {
	return func(in *inputs) gpuspan.Work {
		var shape []int
		var read, wide, first int64
		operands := 0
		for i := range in.dims {
			n, ok := in.size(i)
			w := in.width(i)
			if ok && w == 0 {
				return gpuspan.Work{}
			}
			if w == 0 || operands == tensors { // no tensor, or the result's own
				continue
			}
			if operands++; operands == 1 {
				first = int64(max(n, 1)) * w
			}
			if !ok { // a number, which is no traffic of device memory
				continue
			}
			dims, _ := integers(in.dims[i])
			if shape, ok = broadcast(shape, dims); !ok {
				return gpuspan.Work{}
			}
			read += int64(n) * w
			wide = max(wide, w)
		}
		if operands == 0 {
			return gpuspan.Work{}
		}
		if shape == nil {
			wide, read = in.width(0), first
		}
		n := volume(shape)
		written := int64(n) * wide
		if inPlace {
			if written = first; ops == 0 { // the result is only written
				read -= first
			}
		}
		return gpuspan.Work{Read: read, Written: written, FLOPs: ops * float64(n), Precision: in.precision(0)}
	}
}

// foreach applies the operator of that name to each tensor of its lists. The types of lists are not
// recorded.
func foreach(ops float64, copies, zeroes bool) rule {
	return func(in *inputs) gpuspan.Work {
		n := in.listed(0)
		for i := range in.types {
			in.untyped += in.listed(i)
		}
		if !copies && !zeroes {
			in.untyped += n // the results
		}
		return gpuspan.Work{FLOPs: ops * float64(n)}
	}
}

// optimizer takes lists of as many tensors as there are parameters, and reads and writes some of
// them.
func optimizer(ops float64, read, written int) rule {
	return func(in *inputs) gpuspan.Work {
		n := in.listed(0)
		passes := int64(read + written)
		for i := 1; i < read; i++ {
			if in.listed(i) != n { // a list that is empty is not used: SGD without momentum
				passes -= 2
			}
		}
		in.untyped = n * passes
		return gpuspan.Work{FLOPs: ops * float64(n)}
	}
}

// reduce takes a tensor and, as the second input, the dimensions; without their values the result
// is not known, and taken as one element, which changes the bytes by little. Of two tensors it is
// the elementwise operator.
func reduce(r flops.Reduction) rule {
	return func(in *inputs) gpuspan.Work {
		n, ok := in.size(0)
		w := in.width(0)
		if !ok || w == 0 || n == 0 {
			return gpuspan.Work{}
		}
		if _, two := in.size(1); two && r == flops.ReduceMax {
			return elementwise(1, 2, false)(in)
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

// rowwise returns the rule of ops operations for each element of input at, and passes tensors of
// its size read or written. Parameters and statistics are small in comparison.
func rowwise(at int, ops float64, passes int64) rule {
	return func(in *inputs) gpuspan.Work {
		n, _ := in.size(at)
		b := in.bytes(at)
		return gpuspan.Work{
			Read: b * max(1, passes-1), Written: b * min(1, passes-1), FLOPs: ops * float64(n), Precision: in.precision(at),
		}
	}
}

// norm is a normalization, of rows of the last dimension unless stated otherwise.
type norm struct {
	ops, row   float64 // for each element without parameters, and for each row
	at         int     // its input
	parameters []int   // weight and bias, where they are tensors: one operation each
	added      bool    // another tensor of the same size is added first, and the sum is written, too
	over       int     // the input that lists the dimensions of a row
	rows       func(in *inputs, shape []int) int
	into       int64 // bytes of an element of the result; 0: as the input's
}

func (r norm) work(in *inputs) gpuspan.Work {
	shape := in.shape(r.at)
	n, _ := in.size(r.at)
	b := in.bytes(r.at)
	if in.bad || b == 0 {
		return gpuspan.Work{}
	}
	rows := n / max(1, shape[len(shape)-1])
	switch {
	case r.rows != nil:
		rows = r.rows(in, shape)
	case r.over > 0:
		if length := volume(in.list(r.over, 1)); length > 0 {
			rows = n / length
		}
	}
	in.bad = false // without values only the rows are not known
	w := gpuspan.Work{Read: b, Written: b, FLOPs: r.ops*float64(n) + r.row*float64(rows), Precision: in.precision(r.at)}
	if r.into > 0 {
		w.Written = int64(n) * r.into
	}
	if r.added {
		w.Read, w.Written = w.Read+b, w.Written+b
	}
	for _, i := range r.parameters {
		if p := in.bytes(i); p > 0 {
			w.FLOPs += float64(n)
			w.Read += p
		}
	}
	return w
}

// moves reads whole inputs and writes a result of the size of input result, with so many operations
// for each of its elements; result -1 is one number, with so many operations for each element of
// the first input that it reads.
func moves(ops float64, result int, read ...int) rule {
	return func(in *inputs) gpuspan.Work {
		w := gpuspan.Work{Precision: in.precision(read[0])}
		for _, i := range read {
			w.Read += in.bytes(i)
		}
		if w.Written = in.width(read[0]); result >= 0 {
			w.Written = in.bytes(result)
		}
		n, _ := in.size(max(result, 0))
		if result < 0 {
			n, _ = in.size(read[0])
		}
		if w.Read == 0 || w.Written == 0 {
			return gpuspan.Work{}
		}
		w.FLOPs = ops * float64(n)
		return w
	}
}
