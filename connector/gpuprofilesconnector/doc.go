// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpuprofilesconnector converts GPU spans to OTLP profiles: GPU time, energy and idle time
// by stack, with links to traces. Package stackprofile aggregates; this package is the component
// around it.
package gpuprofilesconnector
