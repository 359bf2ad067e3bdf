// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestParseTraceParent(t *testing.T) {
	const p = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	assert.NoError(t, ParseTraceParent(p))
	assert.Error(t, ParseTraceParent("00-00000000000000000000000000000000-b7ad6b7169203331-01"))
	assert.Error(t, ParseTraceParent("01"+p[2:]))
}
