// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flops

import (
	"cmp"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Mask says which keys a query attends to.
type Mask uint8

// Masks.
const (
	Full Mask = iota // every key
	// Causal lets each query see the keys up to its own position, the last query being at the last key. Exactly those
	// pairs count: q·k − q(q−1)/2. Papers that halve the full count (FlashAttention) are below that by q/2 pairs of a
	// square; those that do not halve it (PaLM, Megatron-LM) count Full.
	Causal
)

// AttentionShape is scaled dot-product attention softmax(Q·Kᵀ/√d)·V of many heads.
type AttentionShape struct {
	Batch    int // sequences
	Heads    int // of queries
	KVHeads  int // of keys and values, for grouped-query (GQA) and multi-query attention; 0 means Heads
	Queries  int // query positions
	Keys     int // key positions; those before the first query are a cache
	HeadDim  int // size of one head's query and key
	ValueDim int // of its value; 0 means HeadDim
	Mask     Mask
}

// Attention is the forward pass with as many key heads as query heads: 4·batch·heads·pairs·headDim, where pairs is
// queries·keys less what the mask hides.
func Attention(batch, heads, queries, keys, headDim int, m Mask, p gpuspan.Precision) gpuspan.Work {
	return AttentionShape{Batch: batch, Heads: heads, Queries: queries, Keys: keys, HeadDim: headDim, Mask: m}.Forward(p)
}

// Pairs is the number of (query, key) pairs of one head that are computed.
func (a AttentionShape) Pairs() float64 {
	q, k := float64(a.Queries), float64(a.Keys)
	if a.Mask != Causal {
		return q * k
	}
	if a.Queries > a.Keys { // the first queries stand before every key
		q = k
	}
	return q*k - q*(q-1)/2
}

// Forward counts the two matrix products, 2·pairs·HeadDim and 2·pairs·ValueDim for each head. The softmax between
// them is left out, as in FlashAttention's figures and torch.utils.flop_counter; Softmax counts it. Grouped queries
// change the bytes only: each key and value head is read once.
func (a AttentionShape) Forward(p gpuspan.Precision) gpuspan.Work {
	q, kv, o := a.elements()
	return a.products(float64(a.HeadDim)+float64(a.valueDim()), q+kv, o, p)
}

// Backward counts the gradients of Q, K and V: four matrix products, 2 × Forward. With recompute the scores are
// computed again from Q and K, as FlashAttention does, which makes five: 2.5 × Forward when ValueDim is HeadDim. Use it
// without recompute for model FLOPs (MFU), with it for what the device did.
func (a AttentionShape) Backward(p gpuspan.Precision, recompute bool) gpuspan.Work {
	d, v := float64(a.HeadDim), float64(a.valueDim())
	sizes := 2*d + 2*v // dQ = dS·K, dK = dSᵀ·Q; dV = Pᵀ·dO, dP = dO·Vᵀ
	if recompute {
		sizes += d
	}
	q, kv, o := a.elements()
	return a.products(sizes, q+kv+2*o, q+kv, p) // reads Q, K, V, O, dO; writes dQ, dK, dV
}

// products are matrix products of the pairs of all heads, whose other sizes are added up.
func (a AttentionShape) products(sizes, read, written float64, p gpuspan.Precision) gpuspan.Work {
	if invalid(a.Batch, a.Heads, a.KVHeads, a.Queries, a.Keys, a.HeadDim, a.ValueDim) {
		return gpuspan.Work{}
	}
	return work(2*float64(a.Batch)*float64(a.Heads)*a.Pairs()*sizes, read, written, p)
}

// elements are those of Q, of K and V, and of the output.
func (a AttentionShape) elements() (q, kv, o float64) {
	b, h, d, v := float64(a.Batch), float64(a.Heads), float64(a.HeadDim), float64(a.valueDim())
	q = b * h * float64(a.Queries) * d
	kv = b * float64(a.kvHeads()) * float64(a.Keys) * (d + v)
	o = b * h * float64(a.Queries) * v
	return q, kv, o
}

func (a AttentionShape) kvHeads() int  { return cmp.Or(a.KVHeads, a.Heads) }
func (a AttentionShape) valueDim() int { return cmp.Or(a.ValueDim, a.HeadDim) }
