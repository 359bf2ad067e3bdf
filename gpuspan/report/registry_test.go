// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/semconv"
)

// Findings that also exist for profiles have the names and thresholds of the registry. The package itself must not
// import the registry, so that its users get no additional modules.
func TestKindsSharedWithProfilesMatchTheRegistry(t *testing.T) {
	d := Thresholds{}.withDefaults()
	for _, k := range []struct {
		is       Kind
		want     string
		at, from float64
	}{
		{PageableCopies, semconv.GPUFindingKindPageableCopies, d.PageableShare, semconv.FindingPageableCopiesLiveThreshold},
		{MemorySpike, semconv.GPUFindingKindMemorySpike, d.SpikeShare, semconv.FindingMemorySpikeThreshold},
		{
			ExposedCommunication, semconv.GPUFindingKindExposedCommunication, d.ExposedShare,
			semconv.FindingExposedCommunicationThreshold,
		},
	} {
		require.EqualValues(t, k.want, k.is)
		require.InDelta(t, k.from, k.at, 1e-12, k.want)
	}
}
