// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package kinetoreceiver reads PyTorch profiler (Kineto) traces and turns them into spans.
//
// As a component of the Collector (type kineto) it follows folders or reads once. [ReadFile] is the
// function for other programs.
//
//	file ──► gunzip ──► internal/chromejson ──► events ──► profiletrace ──► ptrace batches
//	                    one pass, no tree                  by time, who launched what
//
// # Format
//
// The receiver reads Chrome traces in the object form ({"traceEvents": […], …}) and the array form,
// plain, gzip or zstd. Times are microseconds, whole or decimal, as numbers or strings; with
// baseTimeNanoseconds they count from there. Spans keep them exact to the nanosecond. Events of
// phase X with these categories are used, in all versions of the format:
//
//	cpu_op, Operator                       operators of the framework; ProfilerStep#N is a step
//	user_annotation                        annotations; ProfilerStep#N is a step
//	python_function                        nn.Module frames; others are counted
//	cuda_runtime, cuda_driver, Runtime, …  calls that launch and wait
//	kernel, Kernel                         kernels and collectives (nccl, rccl, hccl, oneccl)
//	gpu_memcpy, Memcpy                     copies
//	gpu_memset, Memset                     memsets
//	others                                 plain ranges, at detail operators and kernels
//
// Of the other top-level fields deviceProperties, distributedInfo, baseTimeNanoseconds, host_name,
// traceparent, resource_attributes, OTEL_RESOURCE_ATTRIBUTES, service.name, gpu.job.id and
// mast_job_name are read.
package kinetoreceiver
