// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

// Parameter counts published by the models' authors.
func TestParametersOfPublishedModels(t *testing.T) {
	for name, c := range map[string]struct {
		model       flops.Transformer
		all, active float64
	}{
		"GPT-2": {flops.Transformer{
			Layers: 12, Hidden: 768, Heads: 12, FFN: 3072, Vocab: 50257, Tied: true,
			Bias: true, Positions: 1024,
		}, 124_439_808, 124_439_808},
		"Llama 2 7B": {
			flops.Transformer{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Gated: true, Vocab: 32000},
			6_738_415_616, 6_738_415_616,
		},
		"Llama 3 8B": {llama3, 8_030_261_248, 8_030_261_248},
		"Llama 3 70B": {flops.Transformer{
			Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, FFN: 28672, Gated: true,
			Vocab: 128256,
		}, 70_553_706_496, 70_553_706_496},
		"Llama 3.1 405B": {llama405, 405_853_388_800, 405_853_388_800},
		"Mixtral 8x7B":   {mixtral, 46_702_792_704, 12_879_925_248},
	} {
		all, active := c.model.Parameters()
		require.Equal(t, fmt.Sprintf("%.0f", c.all), fmt.Sprintf("%.0f", all), name)
		require.Equal(t, fmt.Sprintf("%.0f", c.active), fmt.Sprintf("%.0f", active), name)
	}
}

var (
	llama3   = flops.Transformer{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Gated: true, Vocab: 128256}
	llama405 = flops.Transformer{
		Layers: 126, Hidden: 16384, Heads: 128, KVHeads: 8, FFN: 53248, Gated: true,
		Vocab: 128256,
	}
	mixtral = flops.Transformer{
		Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, FFN: 14336, Gated: true, Vocab: 32000,
		Experts: 8, ActiveExperts: 2,
	}
)

// Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", SC 2021, eq. 3: 96·B·s·l·h²·(1 + s/6h + V/16lh) with recomputation, which is
// 72·B·s·l·h²·(1 + s/6h + V/12lh) without.
func TestTrainStepIsMegatronsFormula(t *testing.T) {
	property.Check(t, func(t *property.T) {
		heads := property.IntRange(1, 16).Draw(t, "heads")
		h := heads * property.IntRange(1, 128).Draw(t, "head dim")
		m := flops.Transformer{
			Layers: property.IntRange(1, 96).Draw(t, "layers"), Hidden: h, Heads: heads, FFN: 4 * h,
			Vocab: property.IntRange(1, 60000).Draw(t, "vocab"),
		}
		batch, seq := property.IntRange(1, 64).Draw(t, "batch"), property.IntRange(1, 4096).Draw(t, "seq")
		b, s, l, hf, v := float64(batch), float64(seq), float64(m.Layers), float64(h), float64(m.Vocab)
		require.InEpsilon(t, 72*b*s*l*hf*hf*(1+s/(6*hf)+v/(12*l*hf)), m.TrainStep(batch, seq, false, gpuspan.BF16).FLOPs,
			1e-12)
		require.InEpsilon(t, 96*b*s*l*hf*hf*(1+s/(6*hf)+v/(16*l*hf)), m.TrainStep(batch, seq, true, gpuspan.BF16).FLOPs,
			1e-12)
	})
}

// Brown et al. 2020, table D.1: GPT-3 175B trained on 300 billion tokens, 3.14e23 operations.
func TestSixNDOfGPT3(t *testing.T) {
	gpt3 := flops.Transformer{
		Layers: 96, Hidden: 12288, Heads: 96, FFN: 49152, Vocab: 50257, Tied: true, Bias: true,
		Positions: 2048,
	}
	n, _ := gpt3.Parameters()
	require.InEpsilon(t, 174.6e9, n, .001)
	require.InEpsilon(t, 3.14e23, gpt3.SixND(300_000_000_000, gpuspan.FP16).FLOPs, .002)
}

// Dubey et al. 2024, section 3.2: Llama 3 405B trained on 15.6 trillion tokens, 3.8e25 operations.
func TestSixNDOfLlama3(t *testing.T) {
	require.InDelta(t, 3.8e25, llama405.SixND(15_600_000_000_000, gpuspan.BF16).FLOPs, .05e25)
}

// Chowdhery et al. 2022, appendix B: PaLM 540B at 238.3 thousand tokens per second on 6144 TPU v4
// of 275 TFLOP/s has a model FLOPs utilization of 45.7 % without self-attention and 46.2 % with it,
// of 6N + 12·L·H·Q·T per token.
func TestMFUOfPaLM(t *testing.T) {
	const tokensPerSecond, peak = 238.3e3, 6144 * 275e12
	attention := flops.Transformer{Layers: 118, Hidden: 18432, Heads: 48, HeadDim: 256, KVHeads: 1}
	with := attention.TrainStep(1, 2048, false, gpuspan.BF16).FLOPs
	attention.Layers = 0
	require.Zero(t, attention.TrainStep(1, 2048, false, gpuspan.BF16).FLOPs)
	attention.Layers = 118
	projections := 6. * 118 * 18432 * 256 * (2*48 + 2) * 2048
	perToken := (with - projections) / 2048
	require.InDelta(t, 45.7, 100*tokensPerSecond*6*540.35e9/peak, .05)
	require.InDelta(t, 46.2, 100*tokensPerSecond*(6*540.35e9+perToken)/peak, .05)
}

// Layer by layer, with the functions for single operations.
func TestPrefillAndDecodeAreTheSumOfTheirOperations(t *testing.T) {
	for _, m := range []flops.Transformer{llama3, mixtral} {
		m.Mask = flops.Causal
		active := max(m.ActiveExperts, 1)
		pass := func(batch, queries, keys, logits int) float64 {
			rows, kv := batch*queries, m.KVHeads*128
			layer := flops.Sum(
				flops.Linear(rows, m.Hidden, m.Hidden, false, gpuspan.BF16),
				flops.Linear(rows, m.Hidden, 2*kv, false, gpuspan.BF16),
				flops.Attention(batch, m.Heads, queries, keys, 128, flops.Causal, gpuspan.BF16),
				flops.Linear(rows, m.Hidden, m.Hidden, false, gpuspan.BF16),
				flops.Times(active, flops.Sum(flops.Times(2, flops.Linear(rows, m.Hidden, m.FFN, false, gpuspan.BF16)),
					flops.Linear(rows, m.FFN, m.Hidden, false, gpuspan.BF16))),
			)
			if m.Experts > 0 {
				layer = flops.Sum(layer, flops.Linear(rows, m.Hidden, m.Experts, false, gpuspan.BF16))
			}
			return flops.Sum(flops.Times(m.Layers, layer), flops.Linear(logits, m.Hidden, m.Vocab, false, gpuspan.BF16)).FLOPs
		}
		prefill := m.Prefill(4, 1000, gpuspan.BF16)
		require.InEpsilon(t, pass(4, 1000, 1000, 4), prefill.FLOPs, 1e-12)
		require.EqualValues(t, 4000, prefill.Items)
		decode := m.Decode(4, 999, gpuspan.BF16)
		require.InEpsilon(t, pass(4, 1, 1000, 4), decode.FLOPs, 1e-12)
		require.EqualValues(t, 4, decode.Items)
	}
}

func TestDecodeReadsWeightsAndCache(t *testing.T) {
	// Llama 3 8B: 16.06 GB of weights in BF16, without the embedding table, which is only indexed;
	// 128 KiB of cache for a token.
	require.EqualValues(t, 131072, llama3.CacheSize(1, gpuspan.BF16))
	all, _ := llama3.Parameters()
	read := llama3.Decode(1, 0, gpuspan.BF16).Read
	norms := float64((2*32 + 1) * 4096)
	require.InDelta(t, 2*(all-128256*4096-norms), float64(read), 1)
	require.EqualValues(t, 1000*131072, llama3.Decode(1, 1000, gpuspan.BF16).Read-read)
	require.EqualValues(t, 131072, llama3.Decode(1, 1000, gpuspan.BF16).Written)
	// One token uses two of eight experts; many tokens use all of them.
	few, many := mixtral.Decode(1, 0, gpuspan.BF16).Read, mixtral.Decode(64, 0, gpuspan.BF16).Read
	require.InEpsilon(t, 2*12.88e9, float64(few), .02)
	require.InEpsilon(t, 2*46.7e9, float64(many), .02)
}

func TestCountingAllocatesNothing(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, func() {
		flops.Attention(8, 32, 1024, 1024, 128, flops.Causal, gpuspan.BF16)
		llama3.Decode(8, 1000, gpuspan.BF16)
		flops.MatMul(10, 20, 30, gpuspan.FP16)
		flops.LayerNorm(10, 20, true, gpuspan.FP16)
	}))
}
