// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package semconv holds the name, type and unit of every attribute, metric and event that otelgpu writes.
//
// Constants and tables are generated from registry.yaml, which is the one place to change; docs/semconv.md is
// generated from it too. For an attribute gpu.operation.type there is the key GPUOperationTypeKey, and
// GPUOperationTypeSection for its value "section"; for a metric gpu.operation.duration there are
// GPUOperationDurationName, GPUOperationDurationUnit and GPUOperationDurationDescription.
//
// All names are in development: they may change with a note in the changelog.
package semconv

//go:generate go -C ../internal/tools run ./semconvgen ../..
