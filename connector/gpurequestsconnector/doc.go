// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpurequestsconnector keeps a usage record of each request: its part of the GPU's work.
// Names and meanings are in docs/semconv.
//
// A GPU span with links is a batch. Each link names the span of a request, and states the request's
// share:
//
//	trace of the engine                     trace of a request
//	decode  8 ms, 3.2 J                     POST /generate
//	 ├ link to A, 3 items ──────┐            ├ queue
//	 └ link to B, 1 item        └──────────► └ decode   gpu.operation.type = share
//	                                                    gpu.request.duration = 6 ms, gpu.energy = 2.4 J, …
//
// Files: read.go extracts facts of a span; nest.go finds which work contains which, so that nothing
// is charged twice; account.go adds up the work of one request, book.go keeps all of them,
// children.go finds GPU work in a request's own trace; write.go makes spans of usage records,
// metrics.go metrics; connector.go is the component.
package gpurequestsconnector
