// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simsource

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// A service on simgpu and a Collector with the source `simulated` are independent, but spans match
// samples.
func TestLoadsHaveTheIdentityOfASimulatedServicesDevices(t *testing.T) {
	service := simgpu.New(nil, simgpu.WithDevices(simgpu.DefaultSpec(), simgpu.DefaultSpec()))
	want, err := service.Devices()
	require.NoError(t, err)
	for i, l := range Loads(2, 1, time.Now) {
		d := l.Describe()
		assert.Equal(t, want[i].UUID, d.ID)
		assert.Equal(t, want[i].PCIBDF, d.PCIBDF)
		assert.Equal(t, want[i].Model, d.Model)
		assert.Equal(t, 3.35e12, d.Limits.MemoryBandwidth, "peaks, so that spans get a roofline")
		assert.Equal(t, 989.4e12, d.Limits.FLOPRate["bf16"])
	}
	other := Loads(1, 2, time.Now)[0].Describe()
	assert.NotEqual(t, want[0].UUID, other.ID)
	assert.NotEqual(t, want[1].UUID, other.ID)
}
