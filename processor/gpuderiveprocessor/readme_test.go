// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"testing"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func TestReadmeMatchesTheComponent(t *testing.T) {
	configtest.README(t, "processors", "gpu_derive", createDefaultConfig)
}
