// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpusamplesextension holds the recent samples of every device in memory, so that one component can write them
// (the gpu receiver, the gpu_samples exporter) and another can query the interval of a span (gpu_join).
//
// Each field of each device is a series of its own with its own sample times, for a driver refreshes its counters at
// different moments. A series is a ring of points
//
//	┌──────────────┬────────────┬──────────────────────────┬────────────────────────┐
//	│ time, 8 B    │ value, 8 B │ running integral, 8 B    │ running coverage, 8 B  │
//	│ unix ns      │ base unit  │ value × s, gaps left out │ ns, gaps left out      │
//	└──────────────┴────────────┴──────────────────────────┴────────────────────────┘
//
// in time order, so that the mean over any interval is two binary searches and one division. Rings are bounded in age
// and the sum of all of them in bytes; what falls out is counted.
package gpusamplesextension
