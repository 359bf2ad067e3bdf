// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/otelgpu/otelgpu/examples/internal/accel"
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// An image classifier of 25.6 million parameters (ResNet-50): 4.1 GFLOP forward for an image of 224
// × 224, twice that backward.
const (
	batchSize    = 64
	imageBytes   = 4 * 3 * 224 * 224
	parameters   = 25.6e6
	forwardFLOPs = 4.1e9 * batchSize
	activations  = int64(22e6) * 2 * batchSize // bytes written forward and read backward, in fp16
)

var (
	opUpload = gpuspan.NewOperation("h2d.batch", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned),
		gpuspan.Category("data"))
	opConvs = gpuspan.NewOperation("convolutions", gpuspan.Category("conv"), gpuspan.ItemType("image"))
	opHead  = gpuspan.NewOperation("head", gpuspan.Category("matmul"))
)

// trainer runs steps of the model on a device.
type trainer struct {
	device accel.Device
	stream *gpuspan.Stream
	loader *loader
}

// loader returns batches; every eighth one is late, as if a worker fell behind.
type loader struct{ left, n int }

func (l *loader) next() bool {
	if l.left == 0 {
		return false
	}
	l.left--
	l.n++
	if l.n%8 == 0 {
		time.Sleep(4 * time.Millisecond)
	}
	return true
}

// train runs the loop until the loader has no more.
func (t *trainer) train(ctx context.Context, loop *train.Loop) error {
	for _, step := range loop.Steps(ctx) {
		data := step.Phase(train.Data)
		more := t.loader.next()
		if more {
			up := data.Start(opUpload)
			up.EndWith(t.device.Copy(batchSize*imageBytes, gpuspan.HostToDevice))
		}
		data.End()
		if !more {
			break // a step without items is canceled
		}

		forward := step.Phase(train.Forward)
		x := forward.Start(opConvs) // below the phase
		w := t.device.Compute(gpuspan.Work{
			Read: activations, Written: activations, FLOPs: 0.95 * forwardFLOPs,
			Precision: gpuspan.FP16,
		})
		w.Items = batchSize
		x.EndWith(w)
		y := forward.Start(opHead)
		y.EndWith(t.device.Compute(gpuspan.Work{Read: activations / 10, FLOPs: 0.05 * forwardFLOPs, Precision: gpuspan.FP16}))
		forward.End()

		backward := step.Phase(train.Backward)
		backward.EndWith(t.device.Compute(gpuspan.Work{
			Read: 2 * activations, Written: activations, FLOPs: 2 * forwardFLOPs,
			Precision: gpuspan.FP16,
		}))

		update := step.Phase(train.Optimizer)
		update.EndWith(t.device.Compute(gpuspan.Work{Read: 12 * parameters, Written: 12 * parameters}))

		step.SetItems(batchSize)
		step.SetModelFLOPs(3 * forwardFLOPs)
		if err := t.device.Wait(); err != nil { // the loss is read on the host
			return err
		}
	}
	return nil
}
