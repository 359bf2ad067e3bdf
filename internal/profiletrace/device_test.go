// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADeviceThatTheFileDoesNotListHasTheModelOfAll(t *testing.T) {
	const h100, a100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
	of := func(devices ...Device) *Profile { return &Profile{Meta: Meta{Devices: devices}} }
	same := of(Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, Device{Ordinal: 1, Model: h100})
	mixed := of(Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, Device{Ordinal: 1, Model: a100}, Device{Ordinal: 2, Model: h100})

	require.Equal(t, Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, same.deviceOf(0))
	require.Equal(t, Device{Model: h100}, same.deviceOf(7), "and no identity of another")
	require.EqualValues(t, 132, same.multiprocessors(7))
	require.EqualValues(t, 108, mixed.multiprocessors(1))
	require.Zero(t, mixed.multiprocessors(7), "it is unknown which of the two it is")
	require.Zero(t, of().multiprocessors(0))
}
