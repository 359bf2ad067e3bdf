// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package gpujoinprocessor joins each GPU span with the device samples of its interval
// (utilization, clocks, power, energy, errors), and divides the energy of each device fairly among
// the spans that used it.
//
// A span can only be joined after the samples around it and the spans that used the device
// concurrently have arrived. So the processor keeps batches with GPU spans in the queue of
// exporterhelper:
//
//	                     no GPU span, unknown device: at once
//	                  ┌───────────────────────────────────────────────┐
//	ConsumeTraces ────┤                                               ├──► next
//	                  └─► attribution ─► queue ─► one consumer ─► join┘
//	                      (add)          (bytes)  waits until T ≥ end
//
// T is the settled time of the span's physical GPU: min(newest sample, now − settle), but at least
// now − max_wait. See package internal/attribution for what settling means. The attributes of
// waiting spans are packed in memory.
package gpujoinprocessor
