// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/semconv"
)

// metricID indexes families and definitions.
type metricID uint8

const (
	metricCount metricID = iota
	metricDuration
	metricIO
	metricFLOPs
	metricItems
	metricEnergy
	metricItemEnergy
	metricStepDuration
	metricPhaseDuration
	metricStepItems
	metricStepItemRate
	metricStragglerScore
	metricStragglerDelay
	metricActivityTime
	metricSectionTime
	metrics
)

var definitions = [metrics]struct {
	name string // unit and description are the registry's
	form series.Form
}{
	metricCount:          {semconv.GPUOperationCountName, series.Count},
	metricDuration:       {semconv.GPUOperationDurationName, series.Histogram},
	metricIO:             {semconv.GPUOperationIOName, series.Count},
	metricFLOPs:          {semconv.GPUOperationFLOPSName, series.Sum},
	metricItems:          {semconv.GPUOperationItemsName, series.Count},
	metricEnergy:         {semconv.GPUOperationEnergyName, series.Sum},
	metricItemEnergy:     {semconv.GPUOperationItemEnergyName, series.Gauge},
	metricStepDuration:   {semconv.GPUStepDurationName, series.Histogram},
	metricPhaseDuration:  {semconv.GPUStepPhaseDurationName, series.Histogram},
	metricStepItems:      {semconv.GPUStepItemsName, series.Count},
	metricStepItemRate:   {semconv.GPUStepItemRateName, series.Gauge},
	metricStragglerScore: {semconv.GPUStragglerScoreName, series.Gauge},
	metricStragglerDelay: {semconv.GPUStragglerDelayName, series.Gauge},
	metricActivityTime:   {semconv.GPUActivityTimeName, series.Sum},
	metricSectionTime:    {semconv.GPUSectionTimeName, series.Sum},
}
