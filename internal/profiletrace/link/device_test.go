// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package link

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

func TestADeviceThatTheFileDoesNotListHasTheModelOfAll(t *testing.T) {
	const h100, a100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
	of := func(devices ...event.Device) *Input {
		return &Input{Store: &event.Store{Meta: event.Meta{Devices: devices}}}
	}
	same := of(event.Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, event.Device{Ordinal: 1, Model: h100})
	mixed := of(event.Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, event.Device{Ordinal: 1, Model: a100}, event.Device{Ordinal: 2, Model: h100})

	require.Equal(t, event.Device{Ordinal: 0, Model: h100, ID: "GPU-a"}, same.Meta.DeviceOf(0))
	require.Equal(t, event.Device{Model: h100}, same.Meta.DeviceOf(7), "and no identity of another")
	require.EqualValues(t, 132, same.LimitsOf(7).Multiprocessors)
	require.EqualValues(t, 108, mixed.LimitsOf(1).Multiprocessors)
	require.Zero(t, mixed.LimitsOf(7).Multiprocessors, "it is unknown which of the two it is")
	require.Zero(t, of().LimitsOf(0).Multiprocessors)

	part, whole := occupancy.Device{Multiprocessors: 60}, occupancy.Device{Multiprocessors: 132}
	require.EqualValues(t, 60, of(event.Device{Model: h100, Limits: part}).LimitsOf(7).Multiprocessors, "as the file states it")
	require.EqualValues(t, 132, of(event.Device{Model: h100, Limits: part}, event.Device{Ordinal: 1, Model: h100, Limits: whole}).
		LimitsOf(7).Multiprocessors, "by the model, which is the same")
}
