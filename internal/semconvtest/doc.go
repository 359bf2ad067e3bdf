// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package semconvtest holds what a component emits against the registry of names (package semconv).
//
// A test of a component hands its output to CheckTraces, CheckMetrics or CheckLogs:
//
//	require.NoError(t, semconvtest.CheckTraces(sink.AllTraces()[0]))
//
// Checked are names that begin with gpu., gpuspan. or hw.; everything else belongs to others and passes. Such a
// name must be in the registry, be where the registry says (resource, scope, span, metric, log), and have its type; a
// closed enumeration must have one of its members; strings and lists are not empty and numbers finite, since what is
// unknown is absent. Metrics must have the registry's unit and instrument.
//
// The package's own test scans the repository: metadata.yaml files, string literals of Go files, shipped configurations
// and the names that documentation quotes.
package semconvtest
