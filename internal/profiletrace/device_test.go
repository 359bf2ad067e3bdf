// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/occupancy"
)

func TestADeviceThatTheFileDoesNotListHasTheModelOfAll(t *testing.T) {
	const h100, a100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
	of := func(devices ...Device) *Profile { return &Profile{Meta: Meta{Devices: devices}} }
	same := of(Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, Device{Ordinal: 1, Model: h100})
	mixed := of(Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, Device{Ordinal: 1, Model: a100}, Device{Ordinal: 2, Model: h100})

	require.Equal(t, Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, same.deviceOf(0))
	require.Equal(t, Device{Model: h100}, same.deviceOf(7), "and no identity of another")
	require.EqualValues(t, 132, same.limitsOf(7).Multiprocessors)
	require.EqualValues(t, 108, mixed.limitsOf(1).Multiprocessors)
	require.Zero(t, mixed.limitsOf(7).Multiprocessors, "it is unknown which of the two it is")
	require.Zero(t, of().limitsOf(0).Multiprocessors)

	part, whole := occupancy.Device{Multiprocessors: 60}, occupancy.Device{Multiprocessors: 132}
	require.EqualValues(t, 60, of(Device{Model: h100, Limits: part}).limitsOf(7).Multiprocessors, "as the file states it")
	require.EqualValues(t, 132, of(Device{Model: h100, Limits: part}, Device{Ordinal: 1, Model: h100, Limits: whole}).
		limitsOf(7).Multiprocessors, "by the model, which is the same")
}
