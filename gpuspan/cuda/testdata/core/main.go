// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command core imports package gpuspan alone.
package main

import (
	"context"
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan"
)

func main() {
	prof, err := gpuspan.New(nil)
	fmt.Println(prof.Source(), err)
	_ = prof.Shutdown(context.Background())
}
