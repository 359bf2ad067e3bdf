// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/semconv"
)

func TestReadmeMatchesTheComponent(t *testing.T) {
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	// The README names every metric that the connector may write, and every activity state.
	for _, d := range definitions {
		short := d.name[strings.LastIndex(d.name, "."):]
		assert.True(t, strings.Contains(string(b), "`"+d.name+"`") || strings.Contains(string(b), "`"+short+"`"), d.name)
	}
	states, _ := semconv.LookupAttribute(string(semconv.GPUActivityStateKey))
	assert.Len(t, activityStates, len(states.Members))
	for _, s := range activityStates {
		assert.Contains(t, states.Members, s)
	}
}
