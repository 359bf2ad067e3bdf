// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package semconv holds the name, type and unit of every attribute, metric and event that otelgpu writes.
//
// Constants and tables are generated from the files in registry, which are the only ones to edit; the pages of
// docs/semconv are generated, too. The files have the format of OpenTelemetry Weaver. Names of OpenTelemetry are
// references into its registry, a dependency in registry/manifest.yaml. Annotations hold what Weaver has no key for:
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
// SchemaURL is of a schema family of otelgpu's own; the file is in schemas. For an attribute gpu.operation.type there
// is the key GPUOperationTypeKey, and GPUOperationTypeSection for its value "section"; for a metric
// gpu.operation.duration there are GPUOperationDurationName, GPUOperationDurationUnit and
// GPUOperationDurationDescription. What an application states itself has a function of the value's type:
// GPUZeroCopy(true), GPUOperationShapes("f32[1024,4096]").
//
// All names are in development: they may change with a note in the changelog.
package semconv

//go:generate go -C ../internal/tools run ./semconvgen ../..
