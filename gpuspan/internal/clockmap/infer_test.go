// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap_test

import (
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// A gpuspan.Backend satisfies Device, and its types are inferred.
var _ = func(b gpuspan.Backend) *clockmap.Anchorer[gpuspan.Event, gpuspan.StreamHandle, gpuspan.Status, gpuspan.Call] {
	a, _ := clockmap.NewAnchorer(b, 0, clockmap.Options{})
	return a
}
