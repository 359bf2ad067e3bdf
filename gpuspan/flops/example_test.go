// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

func ExampleAttention() {
	w := flops.Attention(1, 32, 4096, 4096, 128, flops.Causal, gpuspan.BF16)
	fmt.Printf("%.1f GFLOP, %d MB read\n", w.FLOPs/1e9, w.Read/1e6)
	// Output: 137.5 GFLOP, 100 MB read
}

func ExampleEinsum_Plan() {
	chain, err := flops.ParseEinsum("ij,jk,kl->il")
	if err != nil {
		panic(err)
	}
	plan, err := chain.Plan(gpuspan.FP32, []int{10, 1000}, []int{1000, 10}, []int{10, 1000})
	if err != nil {
		panic(err)
	}
	fmt.Println("naive", plan.Naive.FLOPs, "best", plan.Best.FLOPs)
	// Output: naive 3e+08 best 400000
}

func ExampleTransformer_Decode() {
	llama := flops.Transformer{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Gated: true, Vocab: 128256}
	w := llama.Decode(16, 2000, gpuspan.BF16)
	fmt.Printf("%d tokens: %.0f GFLOP, %.1f GB read, %.0f FLOP/B\n", w.Items, w.FLOPs/1e9, float64(w.Read)/1e9,
		w.FLOPs/float64(w.Read+w.Written))
	// Output: 16 tokens: 257 GFLOP, 19.2 GB read, 13 FLOP/B
}
