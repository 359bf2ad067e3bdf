// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml

// Package stepcsvexporter writes one CSV row for each step of a training loop. Package gpuspan/stepcsv describes the
// columns.
package stepcsvexporter
