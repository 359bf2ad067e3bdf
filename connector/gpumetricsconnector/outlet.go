// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"sync"
)

// maxFindings bounds those that wait for the next component, maxBatch the spans of one request: about half a megabyte, well below the 4 MiB
// that OTLP receivers take.
const maxFindings, maxBatch = 10_000, 1000

// outlet hands findings on, apart from the flush of metrics, so that a component which is slow to take spans holds up neither
// metrics nor comparisons.
type outlet struct {
	send   func(context.Context, []*finding)
	queue  chan *finding
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newOutlet(send func(context.Context, []*finding)) *outlet {
	o := &outlet{send: send, queue: make(chan *finding, maxFindings)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

func (o *outlet) start() {
	o.done.Go(func() {
		for first := range o.queue {
			batch := append(make([]*finding, 0, 1+min(len(o.queue), maxBatch-1)), first)
			for len(batch) < maxBatch && len(o.queue) > 0 { // the only reader
				batch = append(batch, <-o.queue)
			}
			o.send(o.ctx, batch)
		}
	})
}

// put takes what there is room for; the result is the number of those that were left out.
func (o *outlet) put(found []*finding) (left int64) {
	for _, f := range found {
		select {
		case o.queue <- f:
		default:
			left++
		}
	}
	return left
}

// close returns when all that was put is handed on. When ctx ends before, what waits is given up by cancelling the request.
func (o *outlet) close(ctx context.Context) {
	close(o.queue)
	stop := context.AfterFunc(ctx, o.cancel)
	o.done.Wait()
	stop()
	o.cancel()
}
