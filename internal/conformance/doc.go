// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance holds telemetry against the registry of names (package semconv): spans, metrics and log records
// of any emitter in any language. The command `otelcol-gpu check` and the tests of the components use it.
//
// Checked are names that begin with gpu., gpuspan. or hw.; everything else belongs to others and passes. Such a name
// must be in the registry, be where the registry says (resource, scope, span, metric, log) and have its type; a closed
// enumeration must have one of its values; strings and lists are not empty and numbers finite, since what is unknown is
// absent; ratios are at most 1, durations, sizes and counts not negative. Spans and events have what the registry
// requires of their type; metrics have the registry's unit, instrument and attributes.
//
// A test of a component hands its output to Traces, Metrics or Logs:
//
//	require.NoError(t, conformance.Traces(sink.AllTraces()[0]))
package conformance
