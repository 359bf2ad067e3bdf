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
	name, unit, description string
	form                    form
}{
	metricCount: {
		semconv.GPUOperationCountName, semconv.GPUOperationCountUnit,
		semconv.GPUOperationCountDescription, formCount,
	},
	metricDuration: {
		semconv.GPUOperationDurationName, semconv.GPUOperationDurationUnit,
		semconv.GPUOperationDurationDescription, formHistogram,
	},
	metricIO: {
		semconv.GPUOperationIOName, semconv.GPUOperationIOUnit, semconv.GPUOperationIODescription,
		formCount,
	},
	metricFLOPs: {
		semconv.GPUOperationFLOPSName, semconv.GPUOperationFLOPSUnit,
		semconv.GPUOperationFLOPSDescription, formSum,
	},
	metricItems: {
		semconv.GPUOperationItemsName, semconv.GPUOperationItemsUnit,
		semconv.GPUOperationItemsDescription, formCount,
	},
	metricEnergy: {
		semconv.GPUOperationEnergyName, semconv.GPUOperationEnergyUnit,
		semconv.GPUOperationEnergyDescription, formSum,
	},
	metricItemEnergy: {
		semconv.GPUOperationItemEnergyName, semconv.GPUOperationItemEnergyUnit,
		semconv.GPUOperationItemEnergyDescription, formGauge,
	},
	metricStepDuration: {
		semconv.GPUStepDurationName, semconv.GPUStepDurationUnit, semconv.GPUStepDurationDescription,
		formHistogram,
	},
	metricPhaseDuration: {
		semconv.GPUStepPhaseDurationName, semconv.GPUStepPhaseDurationUnit,
		semconv.GPUStepPhaseDurationDescription, formHistogram,
	},
	metricStepItems: {semconv.GPUStepItemsName, semconv.GPUStepItemsUnit, semconv.GPUStepItemsDescription, formCount},
	metricStepItemRate: {
		semconv.GPUStepItemRateName, semconv.GPUStepItemRateUnit, semconv.GPUStepItemRateDescription,
		formGauge,
	},
	metricStragglerScore: {
		semconv.GPUStragglerScoreName, semconv.GPUStragglerScoreUnit,
		semconv.GPUStragglerScoreDescription, formGauge,
	},
	metricStragglerDelay: {
		semconv.GPUStragglerDelayName, semconv.GPUStragglerDelayUnit,
		semconv.GPUStragglerDelayDescription, formGauge,
	},
	metricActivityTime: {
		semconv.GPUActivityTimeName, semconv.GPUActivityTimeUnit, semconv.GPUActivityTimeDescription,
		formSum,
	},
	metricSectionTime: {
		semconv.GPUSectionTimeName, semconv.GPUSectionTimeUnit, semconv.GPUSectionTimeDescription,
		formSum,
	},
}
