// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/semconv"
)

// Findings that also exist for profiles have the names, thresholds, titles and remedies of the
// registry.
func TestKindsSharedWithProfilesMatchTheRegistry(t *testing.T) {
	d := Thresholds{}.withDefaults()
	for _, k := range []struct {
		is       Kind
		want     string
		at, from float64
	}{
		{PageableCopies, semconv.GPUFindingKindPageableCopies, d.PageableShare, semconv.FindingPageableCopiesLiveThreshold},
		{Loader, semconv.GPUFindingKindLoader, d.LoaderShare, semconv.FindingLoaderThreshold},
		{LaunchBound, semconv.GPUFindingKindLaunchBound, d.LaunchShare, semconv.FindingLaunchBoundRuns},
		{BelowFloor, semconv.GPUFindingKindBelowFloor, d.FloorShare, semconv.FindingBelowFloorThreshold},
		{WarmUp, semconv.GPUFindingKindWarmUp, d.FirstRatio, semconv.FindingWarmUpFirstRatio},
		{LowEfficiency, semconv.GPUFindingKindLowEfficiency, d.PeakMinShare, semconv.FindingLowEfficiencyThreshold},
		{MemorySpike, semconv.GPUFindingKindMemorySpike, d.SpikeShare, semconv.FindingMemorySpikeThreshold},
		{
			ExposedCommunication, semconv.GPUFindingKindExposedCommunication, d.ExposedShare,
			semconv.FindingExposedCommunicationThreshold,
		},
	} {
		require.EqualValues(t, k.want, k.is)
		require.InDelta(t, k.from, k.at, 1e-12, k.want)
		known, ok := semconv.LookupFindingKind(k.want)
		require.True(t, ok)
		require.Equal(t, known.Title, k.is.Title())
		require.Equal(t, known.Remedy, k.is.remedy())
	}
}
