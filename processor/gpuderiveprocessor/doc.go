// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package gpuderiveprocessor derives rates, utilization, roofline and throughput of GPU spans. The formulas are in
// derive.go, the peaks in package gpuspan/peaks, names and meanings in docs/semconv.md.
package gpuderiveprocessor
