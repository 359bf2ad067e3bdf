// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClipBoundsATextAtARune(t *testing.T) {
	assert.Equal(t, strings.Repeat("a", 256), Clip(strings.Repeat("a", 256)))
	assert.Equal(t, strings.Repeat("a", 256)+"…", Clip(strings.Repeat("a", 257)))
	assert.Equal(t, strings.Repeat("a", 255)+"…", Clip(strings.Repeat("a", 255)+"é"))
	assert.Equal(t, strings.Repeat("\x80", 252)+"…", Clip(strings.Repeat("\x80", 300)), "no UTF-8")
}
