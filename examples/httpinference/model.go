// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/otelgpu/otelgpu/examples/internal/accel"
	"github.com/otelgpu/otelgpu/gpuspan"
)

// A decoder of 1.3 billion parameters in bf16.
const (
	parameters  = 1.3e9
	weightBytes = int64(2 * parameters)
	vocabulary  = 32000
)

// Operations that serve requests are batched: they are timed even if the iteration around them is
// not, and recorded when one of their requests is.
var (
	opIteration = gpuspan.NewOperation("iteration", gpuspan.Category("inference"), gpuspan.ItemType("token"))
	opUpload    = gpuspan.NewOperation("h2d.tokens", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned),
		gpuspan.Category("copy"), gpuspan.Batched())
	opPrefill = gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"),
		gpuspan.Batched())
	opDecode = gpuspan.NewOperation("decode", gpuspan.Category("decode"), gpuspan.ItemType("token"), gpuspan.Graph(),
		gpuspan.Batched())
	opDownload = gpuspan.NewOperation("d2h.logits", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pinned),
		gpuspan.Category("copy"), gpuspan.Batched())
)

// request is one prompt on its way.
type request struct {
	ctx    context.Context // of the HTTP request: its span is what sections link to
	prompt int             // tokens
	answer int             // tokens wanted
	made   int             // tokens so far
	done   chan error
}

// engine runs iterations on one stream. One goroutine uses it.
type engine struct {
	device accel.Device
	stream *gpuspan.Stream
	active []*request // requests in prefill, and requests in decode
}

// iterate processes the prompts of new requests, which gives each its first token, generates one
// token for each of the others, and returns the completed requests. An iteration has no parent: it
// serves all its requests.
func (e *engine) iterate(admitted []*request) (done []*request, err error) {
	x := opIteration.Start(context.Background(), e.stream)
	if len(admitted) > 0 {
		e.prefill(x, admitted)
	}
	if len(e.active) > 0 {
		e.decode(x)
	}
	e.active = append(e.active, admitted...)

	down := x.Start(opDownload)
	link(down, e.active, func(*request) int { return 1 })
	down.EndWith(e.device.Copy(int64(4*vocabulary*len(e.active)), gpuspan.DeviceToHost))
	x.EndWith(gpuspan.Work{Items: int64(len(e.active))})
	if err := e.device.Wait(); err != nil {
		done, e.active = e.active, nil
		return done, err
	}
	e.active = slices.DeleteFunc(e.active, func(r *request) bool {
		if r.made++; r.made < r.answer {
			return false
		}
		done = append(done, r)
		return true
	})
	return done, nil
}

// prefill reads the weights once for all tokens of all prompts: 2 FLOPs for each parameter and
// token.
func (e *engine) prefill(x gpuspan.Section, requests []*request) {
	prompt := func(r *request) int { return r.prompt }
	tokens := 0
	for _, r := range requests {
		tokens += r.prompt
	}
	up := x.Start(opUpload)
	link(up, requests, prompt)
	up.EndWith(e.device.Copy(int64(4*tokens), gpuspan.HostToDevice))

	pre := x.Start(opPrefill)
	link(pre, requests, prompt)
	w := e.device.Compute(gpuspan.Work{
		Read: weightBytes, FLOPs: 2 * parameters * float64(tokens),
		Precision: gpuspan.BF16,
	})
	w.Items = int64(tokens)
	pre.EndWith(w)
}

// decode reads the weights again for one token of each active request.
func (e *engine) decode(x gpuspan.Section) {
	n := len(e.active)
	dec := x.Start(opDecode)
	link(dec, e.active, func(*request) int { return 1 })
	w := e.device.Compute(gpuspan.Work{Read: weightBytes, FLOPs: 2 * parameters * float64(n), Precision: gpuspan.BF16})
	w.Items = int64(n)
	dec.EndWith(w)
}

// link adds a link for each request that a section served, with its number of tokens.
func link(x gpuspan.Section, requests []*request, tokens func(*request) int) {
	for _, r := range requests {
		x.LinkItems(r.ctx, int64(tokens(r)))
	}
}
