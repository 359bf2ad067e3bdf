// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpusamplesextension keeps the recent samples of every device in memory: some components write them (the gpu
// receiver, the gpu_samples exporter), and gpu_join queries the interval of a span.
//
// Each field of each device is a separate series with its own sample times, because a driver refreshes its counters
// at different moments. A series is a ring of points
//
//	┌──────────────┬────────────┬──────────────────────────┬────────────────────────┐
//	│ time, 8 B    │ value, 8 B │ running integral, 8 B    │ running coverage, 8 B  │
//	│ unix ns      │ base unit  │ value × s, gaps omitted  │ ns, gaps omitted       │
//	└──────────────┴────────────┴──────────────────────────┴────────────────────────┘
//
// in time order, so that the mean over any interval takes two binary searches and one division. Rings are limited in
// age, and all of them together in bytes; dropped points are counted.
package gpusamplesextension
