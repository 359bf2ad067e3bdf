// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpuderiveprocessor derives rates, utilization, roofline and throughput of GPU spans. The
// formulas are in derive.go, the peaks in package gpuspan/peaks, names and meanings in
// docs/semconv.
package gpuderiveprocessor
