// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks_test

import (
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
)

func ExampleLookup() {
	d, ok := peaks.Lookup("NVIDIA A100-SXM4-80GB")
	fmt.Println(d.Name, ok, d.FLOPs.BF16/1e12, "TFLOP/s", d.MemoryBandwidth/1e9, "GB/s")

	_, ok = peaks.Lookup("NVIDIA A100") // exists with two memory sizes: no guess
	fmt.Println(ok)
	// Output:
	// A100 SXM4 80GB true 312 TFLOP/s 2039 GB/s
	// false
}
