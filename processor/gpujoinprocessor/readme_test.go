// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"

	"github.com/otelgpu/otelgpu/internal/readmetest"
)

func TestTheReadmeIsTrue(t *testing.T) {
	readmetest.Check(t, "processors", "gpu_join", createDefaultConfig)
}
