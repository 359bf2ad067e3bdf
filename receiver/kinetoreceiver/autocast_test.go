// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

const (
	casted = `"Input type":["c10::BFloat16","float"],"Input Dims":`
	outer  = `"Input type":["float","float","float"],"Input Dims":`
	inner  = `"Input type":["c10::BFloat16","c10::BFloat16","c10::BFloat16"],"Input Dims":`
)

// Under autocast an operator casts its inputs and calls itself, or another one, with them: the
// product is in bfloat16, although the outer operator's inputs are in single precision. A cast is
// work of its own.
func TestAutocastProductsHaveTheTypeOfTheInnerOperator(t *testing.T) {
	cast := func(at int64, dims string, corr string) string {
		return operator("aten::to", at, 8, `"Input type":["float"],"Input Dims":[`+dims+`]`) + "," +
			operator("aten::copy_", at+1, 6, casted+"["+dims+","+dims+"]") + "," + corr
	}
	product := 2.0 * 64 * 128 * 32
	for name, c := range map[string]struct{ outer, inner, innerArgs string }{
		"itself": {
			operator("aten::addmm", 0, 60, outer+"[[32],[64,128],[128,32]]"), "aten::addmm",
			inner + "[[32],[64,128],[128,32]]",
		},
		"another": {
			operator("aten::linear", 0, 60, outer+"[[64,128],[32,128],[32]]"), "aten::addmm",
			inner + "[[32],[64,128],[128,32]]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, st := convert(t, "["+c.outer+","+
				cast(1, "[64,128]", gpu(1, 3, 5, 15, 7, "bfloat16_copy_kernel_cuda", ""))+","+
				cast(11, "[128,32]", gpu(2, 13, 20, 30, 7, "bfloat16_copy_kernel_cuda", ""))+","+
				operator(c.inner, 25, 10, c.innerArgs)+","+gpu(3, 27, 40, 50, 7, "gemm", "")+","+
				// the outer operator does more than that, of unknown size
				gpu(4, 45, 70, 80, 7, "another", "")+"]", Options{Device: "NVIDIA H200"})
			got := map[string]facts.Operator{}
			for _, o := range st.Devices[0].Operators {
				got[o.Name+" "+o.Precision] = o
			}
			require.Contains(t, got, c.inner+" bf16")
			o := got[c.inner+" bf16"]
			assert.InDelta(t, product+64*32, o.FLOPs, 1e-9)
			assert.InDelta(t, 2*(32+64*128+128*32+64*32), o.Bytes, 1e-9)
			assert.Equal(t, int64(10_000), int64(o.Time), "of the product's kernel alone")
			var flops, bytes float64
			for _, o := range st.Devices[0].Operators {
				flops, bytes = flops+o.FLOPs, bytes+o.Bytes
			}
			assert.InDelta(t, product+64*32, flops, 1e-9, "counted once")
			assert.InDelta(t, o.Bytes+6*(64*128+128*32), bytes, 1e-9, "each cast reads four bytes and writes two")
		})
	}
}

// The bytes and FLOPs of one step of GPT-2 (124M, batches of 8 times 1,024 tokens), recorded on an
// H200, cannot exceed what the device can do: no product more than its peak.
func TestNoOperatorExceedsThePeak(t *testing.T) {
	st, err := ReadFile(t.Context(), "testdata/gpt2_autocast_h200.json.gz", Options{},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	d := st.Devices[0]
	for _, o := range d.Operators {
		if o.Bound == "compute" {
			assert.Less(t, o.PeakShare, 0.9, "%s %s", o.Name, o.Shapes)
		}
	}
	// 6 FLOPs for each parameter but the embeddings of positions, which are gathered, and token,
	// and attention as in the backward pass with one forward pass more: half of the pairs of the
	// tokens are masked.
	const tokens, layers, width, length, vocabulary = 8 * 1024, 12, 768, 1024, 50304
	products := 6.0 * tokens * (layers*12*width*width + vocabulary*width)
	attention := 7.0 * tokens * layers * width * length
	assert.InEpsilon(t, products+attention, d.Efficiency.FLOPs, 0.02)
	assert.Less(t, d.Efficiency.PeakShare, 0.75)
}
