// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otlpsink compares gpuspan/otlp with the SDK and its exporter: the same spans, decoded by
// independent decoders, and their cost in the process.
package otlpsink
