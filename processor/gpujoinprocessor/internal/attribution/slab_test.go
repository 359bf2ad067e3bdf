// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNodesAreTwoCacheLines(t *testing.T) {
	assert.EqualValues(t, 128, unsafe.Sizeof(node{}))
	x := slab{}
	for range chunkNodes + 1 {
		n := x.take()
		require.Zero(t, uintptr(unsafe.Pointer(n))%64)
	}
}
