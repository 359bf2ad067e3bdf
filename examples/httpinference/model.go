// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/otelgpu/otelgpu/examples/internal/accel"
	"github.com/otelgpu/otelgpu/gpuspan"
)

// A decoder of 1.3 billion parameters in bf16.
const (
	parameters  = 1.3e9
	weightBytes = int64(2 * parameters)
	vocabulary  = 32000
)

var (
	opUpload   = gpuspan.NewOperation("h2d.tokens", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned), gpuspan.Category("copy"))
	opBatch    = gpuspan.NewOperation("batch", gpuspan.Category("inference"), gpuspan.ItemType("token"))
	opPrefill  = gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"))
	opDecode   = gpuspan.NewOperation("decode", gpuspan.Category("decode"), gpuspan.ItemType("token"), gpuspan.Graph())
	opDownload = gpuspan.NewOperation("d2h.logits", gpuspan.Copy(gpuspan.DeviceToHost, gpuspan.Pinned), gpuspan.Category("copy"))
)

// model runs batches on one stream. One goroutine uses it.
type model struct {
	device accel.Device
	stream *gpuspan.Stream
}

// request is one prompt in a batch.
type request struct {
	ctx    context.Context // of the HTTP request: its span is what the batch links to
	prompt int             // tokens
	answer int             // tokens wanted
	done   chan error
}

// run serves a batch and waits for its result.
func (m *model) run(batch []*request) error {
	ctx := context.Background() // a batch is nobody's child: it serves all its requests
	var prompt, answer, longest int
	for _, r := range batch {
		prompt += r.prompt
		answer += r.answer
		longest = max(longest, r.answer)
	}
	x := opBatch.Start(ctx, m.stream)
	for _, r := range batch {
		x.LinkItems(r.ctx, int64(r.prompt+r.answer))
	}

	up := x.Start(opUpload)
	up.EndWith(m.device.Upload(int64(4 * prompt)))

	// Prefill reads the weights once for all tokens: 2 FLOPs for each parameter and token.
	pre := x.Start(opPrefill)
	w := m.device.Compute(gpuspan.Work{Read: weightBytes, FLOPs: 2 * parameters * float64(prompt), Precision: gpuspan.BF16})
	w.Items = int64(prompt)
	pre.EndWith(w)

	// Decoding reads them again for each token of the longest answer.
	dec := x.Start(opDecode)
	for range longest {
		dec.Add(m.device.Compute(gpuspan.Work{Read: weightBytes, FLOPs: 2 * parameters * float64(len(batch)), Precision: gpuspan.BF16}))
	}
	dec.EndWith(gpuspan.Work{Items: int64(answer)})

	down := x.Start(opDownload)
	down.EndWith(m.device.Download(int64(4 * vocabulary * len(batch))))
	x.EndWith(gpuspan.Work{Items: int64(prompt + answer)})
	return m.device.Wait()
}
