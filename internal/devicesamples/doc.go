// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package devicesamples describes devices and their samples, and keeps the recent samples of every
// device in memory. Components write them (the gpu receiver, the gpu_samples exporter) and query
// the interval of a span (gpu_join) through the extension gpu_samples, which owns the rings.
//
// Each field of each device is a separate series with its own sample times, because a driver
// refreshes its counters at different moments. A series is a ring of points
//
//	┌──────────────┬────────────┬──────────────────────────┬────────────────────────┐
//	│ time, 8 B    │ value, 8 B │ running integral, 8 B    │ running coverage, 8 B  │
//	│ unix ns      │ base unit  │ value × s, gaps omitted  │ ns, gaps omitted       │
//	└──────────────┴────────────┴──────────────────────────┴────────────────────────┘
//
// in time order, so that the mean over any interval takes two binary searches and one division.
// Rings are limited in age, and all of them together in bytes; dropped points are counted.
package devicesamples
