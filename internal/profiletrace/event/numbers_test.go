// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNumbersAreASet(t *testing.T) {
	s := &numbers{}
	base := int64(3)<<CorrelationBits + 17
	for i := int64(0); i < 200_000; i += 3 {
		s.add(base + i)
	}
	for i := range int64(200_000) {
		assert.Equal(t, i%3 == 0, s.has(base+i))
	}
	assert.False(t, s.has(base+1<<23))
}
