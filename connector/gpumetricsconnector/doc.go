// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpumetricsconnector converts GPU spans to metrics. docs/semconv defines names and
// meanings.
//
// Each span is read once, and its dimensions are the key of a bundle that has pointers to all
// series that such a span feeds. Series keep weights (adjusted counts) as doubles; integers are
// computed when points are written.
package gpumetricsconnector
