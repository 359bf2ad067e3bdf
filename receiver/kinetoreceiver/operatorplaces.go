// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Rules of operators that move a part of their inputs: rows, elements at indices, windows of
// pictures.

// likelihood adds up one element of input 0 for each class in input 1.
func likelihood(in *inputs) gpuspan.Work {
	n, _ := in.size(1)
	w := in.width(0)
	if w == 0 || in.bytes(1) == 0 {
		return gpuspan.Work{}
	}
	return gpuspan.Work{Read: int64(n)*w + in.bytes(1), Written: w, FLOPs: float64(n), Precision: in.precision(0)}
}

// dropout multiplies by a mask, which it writes with a byte for each element, and by a factor.
func dropout(in *inputs) gpuspan.Work {
	n, _ := in.size(0)
	b := in.bytes(0)
	return gpuspan.Work{Read: b, Written: b + int64(n)*min(b, 1), FLOPs: 2 * float64(n), Precision: in.precision(0)}
}

// rotary turns pairs of elements of queries and keys by an angle: four products and two additions
// for each pair (Su et al. 2021). It takes positions, queries [tokens, heads·dim], keys, dim, and a
// table of as many cosines and sines as elements of a head are turned.
func rotary(in *inputs) gpuspan.Work {
	var w gpuspan.Work
	table := in.shapes(2, 4)
	dim := in.number(3)
	if in.bad || dim == 0 {
		return w
	}
	part := min(1, float64(table[0][1])/float64(dim))
	for _, i := range []int{1, 2} {
		n, _ := in.size(i)
		turned := part * float64(n)
		w.FLOPs += 3 * turned
		w.Read += int64(turned) * in.width(i)
	}
	w.Written, w.Precision = w.Read, in.precision(1)
	return w
}

// stored writes keys and values into caches of the same type.
func stored(in *inputs) (w gpuspan.Work) {
	for i := range 2 {
		n, _ := in.size(i)
		width := in.width(i)
		if width == 0 {
			return gpuspan.Work{}
		}
		if w := in.width(i + 2); w > 0 {
			width = w
		}
		w.Read += in.bytes(i)
		w.Written += int64(n) * width
	}
	return w
}

// concatenation reads and writes each tensor of a list.
func concatenation(in *inputs) gpuspan.Work {
	in.untyped = 2 * in.listed(0)
	return gpuspan.Work{}
}

// rows takes rows of a table by the numbers in input index.
func rows(table, index int) rule {
	return func(in *inputs) gpuspan.Work {
		t := in.shapes(0, table, index)
		n, _ := in.size(index)
		if in.bad || in.bytes(index) == 0 || len(t[0]) < 2 {
			return gpuspan.Work{}
		}
		b := int64(times(n, volume(t[0][1:]))) * in.width(table)
		return gpuspan.Work{Read: b + in.bytes(index), Written: b}
	}
}

// embeddingBackward takes gradients, indices and the number of rows of the table whose gradient it
// writes.
func embeddingBackward(in *inputs) gpuspan.Work {
	t := in.shapes(0, 0, 1)
	n := in.number(2)
	if in.bad {
		return gpuspan.Work{}
	}
	size, _ := in.size(0)
	return gpuspan.Work{
		Read: in.bytes(0) + in.bytes(1), Written: int64(times(n, t[0][len(t[0])-1])) * in.width(0),
		FLOPs: float64(size), Precision: in.precision(0),
	}
}

// picked takes as many elements of input 0 as there are indices.
func picked(index int) rule {
	return func(in *inputs) gpuspan.Work {
		n, _ := in.size(index)
		b := int64(n) * in.width(0)
		if b == 0 || in.width(index) == 0 {
			return gpuspan.Work{}
		}
		return gpuspan.Work{Read: b + in.bytes(index), Written: b}
	}
}

// scattered writes input 3, a tensor or a number, into input 0 at the indices in input 2, or adds
// it there: then it also reads the old values. As many elements are written as the counted input
// has: as there are indices, or in the rows of input 3.
func scattered(ops float64, counted int) rule {
	return func(in *inputs) gpuspan.Work {
		n, _ := in.size(counted)
		b, indices := int64(n)*in.width(0), in.bytes(2)
		if b == 0 || indices == 0 {
			return gpuspan.Work{}
		}
		w := gpuspan.Work{Read: indices, Written: b, FLOPs: ops * float64(n), Precision: in.precision(0)}
		if _, ok := in.size(3); ok {
			w.Read += b
		}
		if ops > 0 {
			w.Read += b
		}
		return w
	}
}

const indexSize = 8 // bytes of torch's int64

// sorted writes values and their indices. Comparisons are not arithmetic of the result.
func sorted(in *inputs) gpuspan.Work {
	n, _ := in.size(0)
	b := in.bytes(0)
	return gpuspan.Work{Read: b, Written: b + int64(n)*indexSize*min(b, 1)}
}

// topK takes a tensor, how many elements are wanted, and along which dimension: by default the
// last.
func topK(in *inputs) gpuspan.Work {
	shape, wanted := in.shape(0), in.number(1)
	if in.bad || in.bytes(0) == 0 || len(shape) == 0 {
		return gpuspan.Work{}
	}
	along := len(shape) - 1
	if d, err := strconv.Atoi(in.value(2)); err == nil && d >= -len(shape) && d < len(shape) {
		along = (d + len(shape)) % len(shape)
	}
	in.bad = false
	n, _ := in.size(0)
	n = n / max(1, shape[along]) * wanted
	return gpuspan.Work{Read: in.bytes(0), Written: int64(n) * (in.width(0) + indexSize)}
}

// upsampled repeats pixels: it takes [batch, channels, …] and the size of the result, or by what
// factors it is larger.
func upsampled(in *inputs) gpuspan.Work {
	shape := in.shape(0)
	if in.bad || len(shape) < 3 {
		return gpuspan.Work{}
	}
	size := in.list(1, len(shape)-2)
	if in.bad { // factors instead
		in.bad = false
		for i, word := range strings.Split(strings.Trim(in.value(2), "[]"), ",") {
			if f, err := strconv.ParseFloat(strings.TrimSpace(word), 64); err == nil && f > 0 && f < 1<<16 && i+2 < len(shape) {
				size = append(size, int(f*float64(shape[2+i])))
			}
		}
	}
	if in.bad || len(size) != len(shape)-2 {
		return gpuspan.Work{}
	}
	n := times(times(shape[0], shape[1]), volume(size))
	return gpuspan.Work{Read: in.bytes(0), Written: int64(n) * in.width(0)}
}

// pooled takes [batch, channels, height, width], sides of the window, strides, and padding: for
// each element of the result it sums or compares the window, and writes index bytes beside it. more
// is -1 for comparisons, of which there is one fewer than elements; a mean divides instead. Input
// ceil states whether the last windows may exceed the input.
func pooled(more float64, index int64, ceil int) rule {
	return func(in *inputs) gpuspan.Work {
		t := in.shapes(4, 0)
		window, stride, padding := in.list(1, 2), in.list(2, 2), in.list(3, 2)
		if !in.bad && len(stride) == 0 {
			stride = window
		}
		if in.bad || len(window) != 2 || len(stride) != 2 || len(padding) != 2 || in.flag(ceil) ||
			ceil == 5 && in.value(4) != "[1, 1]" { // dilated

			return gpuspan.Work{}
		}
		n := times(t[0][0], t[0][1])
		for i := range 2 {
			if stride[i] == 0 || t[0][2+i]+2*padding[i] < window[i] {
				return gpuspan.Work{}
			}
			n = times(n, (t[0][2+i]+2*padding[i]-window[i])/stride[i]+1)
		}
		return gpuspan.Work{
			Read: in.bytes(0), Written: int64(n) * (in.width(0) + index),
			FLOPs: (float64(volume(window)) + more) * float64(n), Precision: in.precision(0),
		}
	}
}
