// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpuspan turns timed sections of GPU work into OpenTelemetry spans.
package gpuspan
