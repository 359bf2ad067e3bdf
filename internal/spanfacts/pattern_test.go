// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASlashInANameIsAnOrdinaryCharacter(t *testing.T) {
	assert.True(t, Matches("github.com/*", "github.com/pytorch/torchtitan"))
	assert.True(t, Matches("save*", "save/optimizer"))
	assert.True(t, Matches("a?b", "a/b"))
	assert.False(t, Matches("save*", "load/save"))
	require.NoError(t, CheckPattern("a/[bc]"))
	require.Error(t, CheckPattern("a/[b"))
}
