// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"cmp"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Mask defines which keys a query attends to.
type Mask uint8

// Masks.
const (
	Full Mask = iota // every key
	// Causal lets each query attend to the keys up to its own position; the last query is at the
	// last key. Exactly those pairs count: q·k − q(q−1)/2. Papers that halve the full count
	// (FlashAttention) count q/2 pairs less of a square; papers that do not halve it (PaLM,
	// Megatron-LM) count Full.
	Causal
)

// AttentionShape describes multi-head scaled dot-product attention softmax(Q·Kᵀ/√d)·V.
type AttentionShape struct {
	Batch    int  // sequences
	Heads    int  // of queries
	KVHeads  int  // of keys and values, for grouped-query (GQA) and multi-query attention; 0 means Heads
	Queries  int  // query positions
	Keys     int  // key positions; those before the first query are in the cache
	HeadDim  int  // size of one head's query and key
	ValueDim int  // size of one head's value; 0 means HeadDim
	Mask     Mask // pairs of queries and keys that count; default Full
}

// Attention returns the work of the forward pass with as many key heads as query heads:
// 4·batch·heads·pairs·headDim, where pairs is queries·keys minus the masked pairs.
func Attention(batch, heads, queries, keys, headDim int, m Mask, p gpuspan.Precision) gpuspan.Work {
	return AttentionShape{Batch: batch, Heads: heads, Queries: queries, Keys: keys, HeadDim: headDim, Mask: m}.Forward(p)
}

// Pairs returns the number of (query, key) pairs of one head that are computed.
func (a AttentionShape) Pairs() float64 {
	q, k := float64(a.Queries), float64(a.Keys)
	if a.Mask != Causal {
		return q * k
	}
	if a.Queries > a.Keys { // the first queries precede every key
		q = k
	}
	return q*k - q*(q-1)/2
}

// Forward counts the two matrix products, 2·pairs·HeadDim and 2·pairs·ValueDim for each head. The
// softmax between them is omitted, as in FlashAttention's figures and torch.utils.flop_counter;
// Softmax counts it. Grouped queries change the bytes only: each key and value head is read once.
func (a AttentionShape) Forward(p gpuspan.Precision) gpuspan.Work {
	q, kv, o := a.elements()
	return a.products(float64(a.HeadDim)+float64(a.valueDim()), q+kv, o, p)
}

// Backward counts the gradients of Q, K and V: four matrix products, 2 × Forward. With recompute
// the scores are computed again from Q and K, as FlashAttention does, which makes five: 2.5 ×
// Forward when ValueDim is HeadDim. Count model FLOPs (MFU) without recompute, and the FLOPs that
// the device executes with it.
func (a AttentionShape) Backward(p gpuspan.Precision, recompute bool) gpuspan.Work {
	d, v := float64(a.HeadDim), float64(a.valueDim())
	sizes := 2*d + 2*v // dQ = dS·K, dK = dSᵀ·Q; dV = Pᵀ·dO, dP = dO·Vᵀ
	if recompute {
		sizes += d
	}
	q, kv, o := a.elements()
	return a.products(sizes, q+kv+2*o, q+kv, p) // reads Q, K, V, O, dO; writes dQ, dK, dV
}

// products returns the matrix products of the pairs of all heads, whose other sizes are added up.
func (a AttentionShape) products(sizes, read, written float64, p gpuspan.Precision) gpuspan.Work {
	if invalid(a.Batch, a.Heads, a.KVHeads, a.Queries, a.Keys, a.HeadDim, a.ValueDim) {
		return gpuspan.Work{}
	}
	return work(2*float64(a.Batch)*float64(a.Heads)*a.Pairs()*sizes, read, written, p)
}

// elements counts the elements of Q, of K and V, and of the output.
func (a AttentionShape) elements() (q, kv, o float64) {
	b, h, d, v := float64(a.Batch), float64(a.Heads), float64(a.HeadDim), float64(a.valueDim())
	q = b * h * float64(a.Queries) * d
	kv = b * float64(a.kvHeads()) * float64(a.Keys) * (d + v)
	o = b * h * float64(a.Queries) * v
	return q, kv, o
}

func (a AttentionShape) kvHeads() int  { return cmp.Or(a.KVHeads, a.Heads) }
func (a AttentionShape) valueDim() int { return cmp.Or(a.ValueDim, a.HeadDim) }

// Transformer is the decoder-only architecture of Radford et al. (2018), of which each layer is
// attention and a feed-forward network.
type Transformer struct {
	Layers  int  // decoder layers
	Hidden  int  // width of the residual stream
	Heads   int  // query heads
	KVHeads int  // key and value heads; 0 means Heads
	HeadDim int  // 0 means Hidden / Heads
	FFN     int  // inner width of the feed-forward network (of one expert)
	Gated   bool // three matrices (SwiGLU, GeGLU) instead of two
	Vocab   int  // rows of the embedding table
	Tied    bool // the output layer is the embedding table

	Experts       int // feed-forward networks of a mixture; 0 or 1: no mixture
	ActiveExperts int // experts that each token uses; 0 means 1

	Bias      bool // every projection, and the normalisation, has a bias
	Positions int  // learned position embeddings; 0: none (rotary)

	Mask Mask // Full by default, as PaLM and Megatron-LM count; Causal counts what is computed
}

func (t Transformer) headDim() int {
	if t.HeadDim == 0 && t.Heads > 0 {
		return t.Hidden / t.Heads
	}
	return t.HeadDim
}

func (t Transformer) kvHeads() int { return cmp.Or(t.KVHeads, t.Heads) }

// attention returns the number of weights of the four projections of a layer.
func (t Transformer) attention() float64 {
	h, d := float64(t.Hidden), float64(t.headDim())
	return h * d * (2*float64(t.Heads) + 2*float64(t.kvHeads()))
}

// expert returns the number of weights of one feed-forward network.
func (t Transformer) expert() float64 {
	n := 2.0
	if t.Gated {
		n = 3
	}
	return n * float64(t.Hidden) * float64(t.FFN)
}

func (t Transformer) experts() (all, active, router float64) {
	if t.Experts <= 1 {
		return 1, 1, 0
	}
	return float64(t.Experts), float64(max(t.ActiveExperts, 1)), float64(t.Hidden) * float64(t.Experts)
}

// Parameters returns the number of weights: all, and the ones that one token uses (of a mixture of
// experts). Embedding tables count once when tied.
func (t Transformer) Parameters() (all, active float64) {
	n, a, router := t.experts()
	h, d := float64(t.Hidden), float64(t.headDim())
	norms, biases, mlpBias := 2*h, 0.0, 0.0
	if t.Bias {
		norms *= 2
		biases = d*(float64(t.Heads)+2*float64(t.kvHeads())) + h
		mlpBias = float64(t.FFN) + h
		if t.Gated {
			mlpBias += float64(t.FFN)
		}
	}
	embeddings := float64(t.Vocab)*h + float64(t.Positions)*h
	if !t.Tied {
		embeddings += float64(t.Vocab) * h
	}
	rest := embeddings + norms/2 // the last normalisation
	layer := func(experts float64) float64 {
		return t.attention() + experts*(t.expert()+mlpBias) + router + norms + biases
	}
	l := float64(t.Layers)
	return l*layer(n) + rest, l*layer(a) + rest
}

// matrices returns the number of weights that one token is multiplied with: projections, active
// experts, router, and the output layer. Looking up an embedding multiplies nothing.
func (t Transformer) matrices() float64 {
	_, a, router := t.experts()
	return float64(t.Layers)*(t.attention()+a*t.expert()+router) + float64(t.Vocab)*float64(t.Hidden)
}

// SixND returns 6 × active parameters × tokens, the rule of thumb for a training step (Kaplan et
// al. 2020, Hoffmann et al. 2022): two operations for each weight and token forward, four backward.
// It leaves attention scores out and counts embedding tables as if they were multiplied.
func (t Transformer) SixND(tokens int, p gpuspan.Precision) gpuspan.Work {
	if invalid(tokens) || t.invalid() {
		return gpuspan.Work{}
	}
	_, active := t.Parameters()
	return gpuspan.Work{FLOPs: 6 * active * float64(tokens), Items: int64(tokens), Precision: p}
}

// TrainStep counts the matrix products of one step on batch sequences of seq tokens: forward 2 ×
// weights × tokens and 4·Heads·HeadDim for each pair of positions, backward twice that. For a GPT
// of width h with 4h in between and no mask that is 72·B·s·l·h²·(1 + s/6h + V/12lh) (Narayanan et
// al., SC 2021, without recomputation). With recompute the forward pass of the layers, not of the
// output layer, is done again: what the device does, not model FLOPs. Normalisation, activations
// and the optimizer are omitted, as there; they are below 1 %. Bytes are not stated: they depend on
// what is kept.
func (t Transformer) TrainStep(batch, seq int, recompute bool, p gpuspan.Precision) gpuspan.Work {
	if invalid(batch, seq) || t.invalid() {
		return gpuspan.Work{}
	}
	tokens := float64(batch) * float64(seq)
	output := 2 * float64(t.Vocab) * float64(t.Hidden) * tokens
	forward := 2*t.matrices()*tokens + t.scores(batch, seq, seq)
	total := 3 * forward
	if recompute {
		total += forward - output
	}
	return gpuspan.Work{FLOPs: total, Items: int64(batch) * int64(seq), Precision: p}
}

// scores returns the attention of all layers.
func (t Transformer) scores(batch, queries, keys int) float64 {
	a := AttentionShape{Batch: batch, Heads: t.Heads, Queries: queries, Keys: keys, HeadDim: t.headDim(), Mask: t.Mask}
	return float64(t.Layers) * a.Forward(gpuspan.PrecisionUnset).FLOPs
}

// Prefill counts processing batch prompts of seq tokens each: 2 × weights × tokens and the
// attention among them, and the output layer for the last token of each prompt only. It reads every
// weight once, including all experts of a mixture, and writes the keys and values. Items are
// tokens.
func (t Transformer) Prefill(batch, seq int, p gpuspan.Precision) gpuspan.Work {
	if invalid(batch, seq) || t.invalid() {
		return gpuspan.Work{}
	}
	tokens := float64(batch) * float64(seq)
	output := float64(t.Vocab) * float64(t.Hidden)
	ops := 2*(t.matrices()-output)*tokens + 2*output*float64(batch) + t.scores(batch, seq, seq)
	w := work(ops, t.weights(tokens), t.cache(tokens), p)
	w.Items = int64(batch) * int64(seq)
	return w
}

// Decode counts generating one token for each of batch sequences that already have context tokens:
// 2 × weights × batch and attention to context + 1 keys. It reads the weights once (of a mixture,
// as many experts as the batch can use), and the cached keys and values of every sequence. For
// small batches these reads take more time than the operations. Items are tokens.
func (t Transformer) Decode(batch, context int, p gpuspan.Precision) gpuspan.Work {
	if invalid(batch, context) || t.invalid() {
		return gpuspan.Work{}
	}
	b := float64(batch)
	full := t
	full.Mask = Full // one query at the end attends to everything
	ops := 2*t.matrices()*b + full.scores(batch, 1, context+1)
	w := work(ops, t.weights(b)+t.cache(b*float64(context)), t.cache(b), p)
	w.Items = int64(batch)
	return w
}

// weights returns the elements read for a number of tokens.
func (t Transformer) weights(tokens float64) float64 {
	n, a, router := t.experts()
	used := min(n, a*tokens)
	return float64(t.Layers)*(t.attention()+used*t.expert()+router) + float64(t.Vocab)*float64(t.Hidden)
}

// cache returns the elements of keys and values of a number of tokens.
func (t Transformer) cache(tokens float64) float64 {
	return 2 * float64(t.Layers) * float64(t.kvHeads()) * float64(t.headDim()) * tokens
}

// CacheSize returns the size in bytes of the cached keys and values of a number of tokens.
func (t Transformer) CacheSize(tokens int, p gpuspan.Precision) int64 {
	if invalid(tokens) || t.invalid() {
		return 0
	}
	return whole(t.cache(float64(tokens)) * ElementSize(p))
}

func (t Transformer) invalid() bool {
	return invalid(t.Layers, t.Hidden, t.Heads, t.KVHeads, t.HeadDim, t.FFN, t.Vocab, t.Experts, t.ActiveExperts,
		t.Positions) ||
		t.Experts > 0 && t.ActiveExperts > t.Experts
}
