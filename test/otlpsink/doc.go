// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlpsink holds gpuspan/otlp against the SDK and its exporter: the same spans, decoded by others, and what
// they cost the process.
package otlpsink
