// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"errors"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Conv is a convolution over one to three spatial dimensions, with the parameters of
// torch.nn.Conv1d to Conv3d and ConvTranspose1d to 3d. Slices have one entry for each spatial
// dimension; nil means all 1 (Stride, Dilation) or all 0 (Padding, OutputPadding).
type Conv struct {
	Batch         int   // inputs
	In, Out       int   // channels
	Input         []int // spatial sizes of the input
	Kernel        []int // spatial sizes of the kernel
	Stride        []int // step between positions
	Padding       []int // on both sides of each dimension
	Dilation      []int // distance between elements of the kernel
	Groups        int   // number of independent groups of channels; 0 means 1
	Transposed    bool  // ConvTranspose: input and output are exchanged
	OutputPadding []int // of transposed ones, at the end of each dimension
	Bias          bool  // one addition for each output element
}

// Output returns the spatial sizes of the output, or an error if parameters are invalid or an
// output is empty. torch.nn defines them as
//
//	convolution  (input + 2·padding − dilation·(kernel − 1) − 1) / stride + 1, rounded down
//	transposed   (input − 1)·stride − 2·padding + dilation·(kernel − 1) + output padding + 1
func (c Conv) Output() ([]int, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	out := make([]int, len(c.Input))
	for i := range c.Input {
		s, d, pad := at(c.Stride, i, 1), at(c.Dilation, i, 1), at(c.Padding, i, 0)
		reach := d*(c.Kernel[i]-1) + 1
		if c.Transposed {
			out[i] = (c.Input[i]-1)*s - 2*pad + reach + at(c.OutputPadding, i, 0)
		} else if span := c.Input[i] + 2*pad - reach; span >= 0 {
			out[i] = span/s + 1
		}
		if out[i] <= 0 {
			return nil,
				fmt.Errorf("convolution has no output in dimension %d: input %d, kernel %d, stride %d, padding %d, dilation %d", i,
					c.Input[i], c.Kernel[i], s, pad, d)
		}
	}
	return out, nil
}

// Forward counts the direct algorithm: one multiply-add for each output position (input position of
// a transposed convolution), kernel position, input channel of the group, and output channel.
// Positions in the padding count, as in torch.utils.flop_counter and fvcore; FFT and Winograd
// algorithms do fewer. It returns the errors of [Conv.Output]. It allocates.
func (c Conv) Forward(p gpuspan.Precision) (gpuspan.Work, error) {
	x, y, ops, err := c.tensors()
	if err != nil {
		return gpuspan.Work{}, err
	}
	w := work(ops, x+c.weights(), y, p)
	if c.Bias {
		w.FLOPs += y
		w.Read += whole(float64(c.Out) * ElementSize(p))
	}
	return w, nil
}

// Backward counts the gradients with respect to the input and to the weights: each has as many
// multiply-adds as Forward, plus the additions of the bias's gradient. The first layer of a network
// needs no gradient of its input: set input to false. It returns the errors of [Conv.Output]. It
// allocates.
func (c Conv) Backward(p gpuspan.Precision, input bool) (gpuspan.Work, error) {
	x, y, ops, err := c.tensors()
	if err != nil {
		return gpuspan.Work{}, err
	}
	w := work(ops, x+y, c.weights(), p)
	if input {
		w = Sum(w, work(ops, y+c.weights(), x, p))
	}
	if c.Bias {
		w.FLOPs += y - float64(c.Out) // a sum of n values is n−1 additions
		w.Written += whole(float64(c.Out) * ElementSize(p))
	}
	return w, nil
}

// tensors returns the elements of input and output, and the operations of the direct algorithm.
func (c Conv) tensors() (x, y, ops float64, err error) {
	out, err := c.Output()
	x = float64(c.Batch) * float64(c.In) * product(c.Input)
	y = float64(c.Batch) * float64(c.Out) * product(out)
	positions := product(out)
	if c.Transposed {
		positions = product(c.Input)
	}
	return x, y, 2 * float64(c.Batch) * positions * c.weights(), err
}

// weights returns the number of elements of the kernel tensor. Each output channel sees the input
// channels of its group.
func (c Conv) weights() float64 {
	return float64(c.In) * float64(c.Out) / float64(max(c.Groups, 1)) * product(c.Kernel)
}

func (c Conv) check() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("convolution"+format, args...))
		}
	}
	n := len(c.Input)
	bad(n < 1 || n > 3, " needs 1 to 3 spatial dimensions, found %d", n)
	bad(len(c.Kernel) != n, " has %d spatial dimensions and a kernel of %d", n, len(c.Kernel))
	for _, s := range []struct {
		name string
		v    []int
		min  int
	}{
		{"input", c.Input, 1},
		{"kernel", c.Kernel, 1},
		{"stride", c.Stride, 1},
		{"dilation", c.Dilation, 1},
		{"padding", c.Padding, 0},
		{"output padding", c.OutputPadding, 0},
	} {
		bad(s.v != nil && len(s.v) != n && s.name != "kernel", " has %d spatial dimensions and %s for %d", n, s.name,
			len(s.v))
		for _, v := range s.v {
			bad(v < s.min, "'s %s must be at least %d, found %d", s.name, s.min, v)
		}
	}
	g := max(c.Groups, 1)
	bad(c.Groups < 0 || c.In%g != 0 || c.Out%g != 0, "'s channels %d and %d do not divide into %d groups", c.In, c.Out,
		c.Groups)
	bad(c.Batch < 0 || c.In < 0 || c.Out < 0, "'s batch and channels must be non-negative, found %d, %d and %d", c.Batch,
		c.In, c.Out)
	return errors.Join(errs...)
}

func at(v []int, i, otherwise int) int {
	if v == nil {
		return otherwise
	}
	return v[i]
}

func product(v []int) float64 {
	p := 1.0
	for _, x := range v {
		p *= float64(x)
	}
	return p
}
