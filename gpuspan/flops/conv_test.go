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

// multiplyAdds executes a one-dimensional convolution and counts its multiply-adds.
func multiplyAdds(input, kernel, stride, padding, dilation, outputPadding int, transposed bool) (output, count int) {
	reached := map[int]bool{}
	if transposed {
		last := 0
		for i := range input {
			for k := range kernel {
				o := i*stride + k*dilation - padding
				last = max(last, i*stride+k*dilation)
				if o >= 0 {
					reached[o] = true
				}
				count++ // elements cropped by padding are computed, too
			}
		}
		return last + 1 - 2*padding + outputPadding, count
	}
	for o := 0; o*stride+(kernel-1)*dilation < input+2*padding; o++ {
		output++
		count += kernel
	}
	return output, count
}

func TestConvolutionCountsEqualTheDirectAlgorithm(t *testing.T) {
	property.Check(t, func(t *property.T) {
		rank := property.IntRange(1, 3).Draw(t, "rank")
		groups := property.IntRange(1, 3).Draw(t, "groups")
		c := flops.Conv{
			Batch: property.IntRange(1, 3).Draw(t, "batch"), Groups: groups,
			In: groups * property.IntRange(1, 3).Draw(t, "in"), Out: groups * property.IntRange(1, 3).Draw(t, "out"),
			Transposed: property.Bool().Draw(t, "transposed"),
		}
		outputs, count := []int{}, c.Batch*c.In/groups*c.Out
		for range rank {
			k := property.IntRange(1, 4).Draw(t, "kernel")
			in := property.IntRange(10, 14).Draw(t, "input")
			s, d, p := property.IntRange(1, 3).Draw(t, "stride"), property.IntRange(1, 3).Draw(t, "dilation"),
				property.IntRange(0, 2).Draw(t, "padding")
			op := 0
			if c.Transposed {
				op = property.IntRange(0, s-1).Draw(t, "output padding")
			}
			c.Kernel, c.Input = append(c.Kernel, k), append(c.Input, in)
			c.Stride, c.Dilation, c.Padding = append(c.Stride, s), append(c.Dilation, d), append(c.Padding, p)
			c.OutputPadding = append(c.OutputPadding, op)
			o, n := multiplyAdds(in, k, s, p, d, op, c.Transposed)
			outputs = append(outputs, o)
			count *= n
		}
		out, err := c.Output()
		require.NoError(t, err)
		require.Equal(t, outputs, out)
		w, err := c.Forward(gpuspan.FP32)
		require.NoError(t, err)
		require.EqualValues(t, 2*count, w.FLOPs)
		b, err := c.Backward(gpuspan.FP32, true)
		require.NoError(t, err)
		require.EqualValues(t, 4*count, b.FLOPs)
	})
}

func conv(in, out, size, kernel, stride, padding, groups int) flops.Conv {
	two := func(v int) []int { return []int{v, v} }
	return flops.Conv{
		Batch: 1, In: in, Out: out, Input: two(size), Kernel: two(kernel), Stride: two(stride),
		Padding: two(padding), Groups: groups,
	}
}

func forward(t *testing.T, cs ...flops.Conv) (total float64) {
	for _, c := range cs {
		w, err := c.Forward(gpuspan.FP32)
		require.NoError(t, err)
		total += w.FLOPs
	}
	return total
}

// torchvision publishes GFLOPS of its models as multiply-adds: ResNet-50 4.09, VGG-16 15.47,
// MobileNetV2 0.30.
func TestNetworkCountsEqualTorchvisions(t *testing.T) {
	resnet := []flops.Conv{conv(3, 64, 224, 7, 2, 3, 1)}
	in, size := 64, 56
	for stage, blocks := range []int{3, 4, 6, 3} {
		width := 64 << stage
		for b := range blocks {
			stride := 1
			if b == 0 && stage > 0 {
				stride = 2
			}
			resnet = append(resnet, conv(in, width, size, 1, 1, 0, 1), conv(width, width, size, 3, stride, 1, 1))
			if b == 0 {
				resnet = append(resnet, conv(in, 4*width, size, 1, stride, 0, 1))
			}
			size /= stride
			resnet = append(resnet, conv(width, 4*width, size, 1, 1, 0, 1))
			in = 4 * width
		}
	}
	total := forward(t, resnet...) + flops.Linear(1, 2048, 1000, false, gpuspan.FP32).FLOPs
	require.InDelta(t, 4.09, total/2e9, .005)

	vgg, in, size := 0., 3, 224
	for _, n := range []int{64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0} {
		if n == 0 {
			size /= 2
			continue
		}
		vgg += forward(t, conv(in, n, size, 3, 1, 1, 1))
		in = n
	}
	vgg += flops.MatMul(1, 4096, 25088, gpuspan.FP32).FLOPs + flops.MatMul(1, 4096, 4096,
		gpuspan.FP32).FLOPs + flops.MatMul(1, 1000, 4096, gpuspan.FP32).FLOPs
	require.InDelta(t, 15.47, vgg/2e9, .005)

	mobile, in, size := forward(t, conv(3, 32, 224, 3, 2, 1, 1)), 32, 112
	for _, s := range []struct{ expand, out, n, stride int }{
		{1, 16, 1, 1},
		{6, 24, 2, 2},
		{6, 32, 3, 2},
		{6, 64, 4, 2},
		{6, 96, 3, 1},
		{6, 160, 3, 2},
		{6, 320, 1, 1},
	} {
		for i := range s.n {
			stride, wide := 1, in*s.expand
			if i == 0 {
				stride = s.stride
			}
			if s.expand > 1 {
				mobile += forward(t, conv(in, wide, size, 1, 1, 0, 1))
			}
			mobile += forward(t, conv(wide, wide, size, 3, stride, 1, wide))
			size /= stride
			mobile += forward(t, conv(wide, s.out, size, 1, 1, 0, 1))
			in = s.out
		}
	}
	mobile += forward(t, conv(320, 1280, 7, 1, 1, 0, 1)) + flops.MatMul(1, 1000, 1280, gpuspan.FP32).FLOPs
	require.InDelta(t, .30, mobile/2e9, .005)
}

func TestInvalidConvolutionsReportTheReason(t *testing.T) {
	for want, c := range map[string]flops.Conv{
		"1 to 3 spatial dimensions, found 0":      {},
		"a kernel of 1":                           {Input: []int{5, 5}, Kernel: []int{3}},
		"channels 3 and 4 do not divide into 2":   {In: 3, Out: 4, Groups: 2, Input: []int{5}, Kernel: []int{3}},
		"stride must be at least 1, found 0":      {Input: []int{5}, Kernel: []int{3}, Stride: []int{0}},
		"padding for 2":                           {Input: []int{5}, Kernel: []int{3}, Padding: []int{1, 1}},
		"no output in dimension 0":                {Input: []int{5}, Kernel: []int{6}},
		"batch and channels must be non-negative": {Batch: -1, Input: []int{5}, Kernel: []int{3}},
	} {
		w, err := c.Forward(gpuspan.FP32)
		require.ErrorContains(t, err, want)
		require.Zero(t, w)
	}
}

func TestBiasesAreAdditions(t *testing.T) {
	c := conv(3, 8, 10, 3, 1, 1, 1)
	plain := forward(t, c)
	c.Bias = true
	require.EqualValues(t, 8*10*10, forward(t, c)-plain)
	require.EqualValues(t, 7*5, flops.Linear(7, 3, 5, true, gpuspan.FP32).FLOPs-flops.Linear(7, 3, 5, false,
		gpuspan.FP32).FLOPs)
}
