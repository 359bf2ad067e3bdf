// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
)

// podsTimeout is how long the kubelet may take for an answer.
const podsTimeout = 5 * time.Second

// followPods asks the kubelet who holds which device, at every collection interval. While it does not answer, nobody is
// known to hold any.
func (r *gpuReceiver) followPods(ctx context.Context, socket string) {
	client, err := podresources.New(socket)
	if err != nil {
		r.set.Logger.Warn("Devices are not attributed to pods", zap.Error(err))
		return
	}
	defer func() { _ = client.Close() }()
	warned := false
	for {
		call, cancel := context.WithTimeout(ctx, podsTimeout)
		pods, err := client.List(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		r.pods.Store(pods)
		if err != nil && !warned {
			r.set.Logger.Warn("Devices are not attributed to pods", zap.Error(err))
		}
		warned = err != nil
		if !sleep(ctx, r.cfg.CollectionInterval) {
			return
		}
	}
}
