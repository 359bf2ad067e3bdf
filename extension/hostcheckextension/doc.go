// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package hostcheckextension is a middleware for the HTTP servers of other components
// (`middlewares`). It rejects requests that arrive at a loopback address under the name of another
// host, so that a web site cannot reach a local Collector through the browser of a user (DNS
// rebinding).
package hostcheckextension
