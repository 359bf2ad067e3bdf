// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import "github.com/otelgpu/otelgpu/semconv"

// form of a metric.
type form uint8

const (
	formCount     form = iota // monotonic sum of whole numbers
	formSum                   // monotonic sum of doubles
	formHistogram             // distribution
	formGauge                 // quotient of sums since the last output; written only when there were any
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
	form form
}{
	metricCount:          {semconv.GPUOperationCountName, formCount},
	metricDuration:       {semconv.GPUOperationDurationName, formHistogram},
	metricIO:             {semconv.GPUOperationIOName, formCount},
	metricFLOPs:          {semconv.GPUOperationFLOPSName, formSum},
	metricItems:          {semconv.GPUOperationItemsName, formCount},
	metricEnergy:         {semconv.GPUOperationEnergyName, formSum},
	metricItemEnergy:     {semconv.GPUOperationItemEnergyName, formGauge},
	metricStepDuration:   {semconv.GPUStepDurationName, formHistogram},
	metricPhaseDuration:  {semconv.GPUStepPhaseDurationName, formHistogram},
	metricStepItems:      {semconv.GPUStepItemsName, formCount},
	metricStepItemRate:   {semconv.GPUStepItemRateName, formGauge},
	metricStragglerScore: {semconv.GPUStragglerScoreName, formGauge},
	metricStragglerDelay: {semconv.GPUStragglerDelayName, formGauge},
	metricActivityTime:   {semconv.GPUActivityTimeName, formSum},
	metricSectionTime:    {semconv.GPUSectionTimeName, formSum},
}
