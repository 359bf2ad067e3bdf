// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package chrometraceexporter writes spans as Chrome traces: the JSON that ui.perfetto.dev,
// chrome://tracing and speedscope open, and that readers of the PyTorch profiler's files
// understand. Package gpuspan/chrometrace describes the format.
//
// One exporter in a traces and in a metrics pipeline writes one file: gauges of devices become
// counters under the spans of the same hw.id.
package chrometraceexporter
