// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip_test

import (
	"testing"

	"github.com/otelgpu/otelgpu/gpuspan/internal/require"
)

func TestMain(m *testing.M) { require.NoLeaks(m) }
