// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"io"
)

// synthetic writes a trace of about size bytes in the form of PyTorch 2: steps, nested operators,
// launches and kernels on two streams, copies. All its totals follow from the number of launches,
// which it returns.
type synthetic struct {
	steps, launches, copies int64
	kernelNS, copyNS        int64
	bytes                   int64
}

func writeSynthetic(w io.Writer, size int64) (synthetic, error) {
	var s synthetic
	var written int64
	out := func(format string, args ...any) error {
		n, err := fmt.Fprintf(w, format, args...)
		written += int64(n)
		return err
	}
	if err := out(
		"{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100 80GB HBM3\"}],\n" +
			"  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, \"world_size\": 8},\n  \"traceEvents\": [\n"); err != nil {
		return s, err
	}
	const perStep, every = 2000, 20 // launches per step, µs per launch
	at := int64(1_000_000)          // µs
	corr := int64(0)
	for ; written < size; s.steps++ {
		start := at
		for i := range int64(perStep) {
			corr++
			if err := out(
				"  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::addmm\", \"pid\": 41, \"tid\": 41,\n    \"ts\": %d.%03d, \"dur\": 15.250,\n"+
					"    \"args\": {\n      \"External id\": %d, \"Record function id\": 0, \"Sequence number\": %d, \"Input Dims\": [[4096], [8192, 4096], [4096, 4096], [], []], \"Ev Idx\": %d\n    }\n  },\n"+
					"  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 41, \"tid\": 41,\n    \"ts\": %d.125, \"dur\": 5.500,\n"+
					"    \"args\": {\n      \"External id\": %d, \"cbid\": 211, \"correlation\": %d\n    }\n  },\n",
				at, i%1000, corr, corr, corr, at+3, corr, corr); err != nil {
				return s, err
			}
			if i%100 == 99 {
				s.copies++
				s.copyNS += 2500
				s.bytes += 65536
				if err := out(
					"  {\n    \"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD (Pageable -> Device)\", \"pid\": 0, \"tid\": 7,\n    \"ts\": %d.250, \"dur\": 2.500,\n"+
						"    \"args\": {\n      \"External id\": %d, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": %d, \"bytes\": 65536, \"memory bandwidth (GB/s)\": 26.2144\n    }\n  },\n",
					at+10, corr, corr); err != nil {
					return s, err
				}
			} else {
				s.launches++
				s.kernelNS += 12125
				if err := out(
					"  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_64x3_tn_align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_64x3_tn_align8::Params)\", \"pid\": 0, \"tid\": 7,\n    \"ts\": %d.250, \"dur\": 12.125,\n"+
						"    \"args\": {\n      \"External id\": %d, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": %d, \"registers per thread\": 238, \"shared memory\": 147456, \"blocks per SM\": 1.939394, \"warps per SM\": 15.515152, \"grid\": [16, 16, 1], \"block\": [256, 1, 1], \"est. achieved occupancy %%\": 25\n    }\n  },\n",
					at+10, corr, corr); err != nil {
					return s, err
				}
			}
			if err := out(
				"  {\n    \"ph\": \"s\", \"id\": %d, \"pid\": 41, \"tid\": 41, \"ts\": %d.125,\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  },\n", corr, at+3); err != nil {
				return s, err
			}
			at += every
		}
		if err := out(
			"  {\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#%d\", \"pid\": 41, \"tid\": 41,\n    \"ts\": %d, \"dur\": %d,\n    \"args\": {}\n  },\n",
			s.steps+10, start, at-start); err != nil {
			return s, err
		}
	}
	return s,
		out("  {\n    \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\", \"pid\": \"\", \"tid\": \"\", \"ts\": %d\n  }\n  ],\n  \"baseTimeNanoseconds\": 1751410836000000000\n}\n", at)
}
