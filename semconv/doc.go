// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package semconv defines the name, type and unit of every attribute, metric and event that otelgpu
// writes.
//
// Constants, tables and the pages of docs/semconv are generated from the files in registry; edit
// only those. They have the format of OpenTelemetry Weaver. Names of OpenTelemetry are references
// into its registry, a dependency in registry/manifest.yaml. Annotations add information for which
// Weaver has no key:
//
//	appears_on resource, scope, span, metric (data point), log: signals that may have the attribute
//	writers    gpuspan and the types of the Collector's components
//	absent     what the attribute's absence means; unknown if not stated
//	declared   applications state it themselves: there is a function that makes the attribute of a value
//	unit       UCUM; Weaver has units for metrics only
//	open       values other than the enumeration's may occur
//	variable   the word for the last segment of a template, as <phase>
//	types      of a span: the values of gpu.operation.type
//	section    of a file's first group: its order in the documentation
//	page       of a file's first group: its page of docs/semconv
//	type, members, metric, instrument   what a reference refers to, so that generating needs no second registry
//
// SchemaURL belongs to otelgpu's own schema family; the file is in schemas. An attribute
// gpu.operation.type has the key GPUOperationTypeKey, and its value "section" the constant
// GPUOperationTypeSection; a metric gpu.operation.duration has GPUOperationDurationName,
// GPUOperationDurationUnit and GPUOperationDurationDescription. Attributes that applications set
// have a function with a parameter of the value's type: GPUZeroCopy(true),
// GPUOperationShapes("f32[1024,4096]").
//
// All names are in development: they may change with a note in the changelog.
package semconv

//go:generate go -C ../internal/tools run ./semconvgen ../..
