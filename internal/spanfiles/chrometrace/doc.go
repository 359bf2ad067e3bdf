// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package chrometrace writes the files that gpuspan/chrometrace describes, for it and for the
// Collector's chrome_trace exporter.
package chrometrace
