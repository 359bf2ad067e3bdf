// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpudata

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestASourceThatIsNotBuiltInStatesWhy(t *testing.T) {
	s := NotBuilt("dcgm", "DCGM")
	err := s.Open()
	assert.ErrorIs(t, err, ErrUnavailable, "auto goes on to the next source")
	assert.EqualError(t, err, "built with gpuspan_static, or not for Linux on amd64 or arm64: the DCGM library cannot be loaded: not available")
	assert.Equal(t, "dcgm", s.Name())
	assert.Empty(t, s.Devices())
}
