// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpujoinprocessor brings the samples of the devices (utilization, clocks, power, energy, errors) into the
// interval of each GPU span, and divides the energy of each device fairly among the spans that used it.
//
// A span can only be joined when the samples around it have arrived and when the spans that used the device
// concurrently have come. So the processor holds batches with GPU spans, in the queue of exporterhelper:
//
//	                     no GPU span, unknown device: at once
//	                  ┌───────────────────────────────────────────────┐
//	ConsumeTraces ────┤                                               ├──► next
//	                  └─► attribution ─► queue ─► one consumer ─► join┘
//	                      (add)          (bytes)  waits until T ≥ end
//
// T is the settled time of the span's physical GPU: min(newest sample, now − settle), but at least now − max_wait. See
// package internal/attribution for what settling means. The attributes of waiting spans are packed in memory.
package gpujoinprocessor
