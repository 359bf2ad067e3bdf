// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

func TestBatchesAreProcessedAtOnce(t *testing.T) {
	d := withSamples(t, assembling(nil), devicesamples.Device{ID: "GPU-0", Model: "NVIDIA H200"})
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 50 {
				in := attrs{
					"gpu.operation.type": "section", "gpu.duration": 0.001, "hw.id": "GPU-0", "gpu.io.size": 2_400_000_000,
					"gpu.step.index": w,
				}
				if i%5 == 0 {
					in["hw.id"], in["hw.model"] = fmt.Sprint("GPU-", w, i), "NVIDIA H200"
				}
				td, s := oneSpan(t, in)
				_, err := d.process(t.Context(), td)
				assert.NoError(t, err)
				got, _ := s.Attributes().Get("gpu.io.utilization")
				assert.InEpsilon(t, 0.5, got.Double(), 1e-12)
			}
		})
	}
	workers.Wait()
}
