// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package gpumetricsconnector makes metrics of GPU spans. Names and meanings are in docs/semconv.md.
//
// A span is read once and found once: its dimensions are the key of a bundle, which holds pointers to all streams
// that such a span feeds. Streams hold weights (adjusted counts) as doubles; whole numbers are made when points are
// written.
package gpumetricsconnector
