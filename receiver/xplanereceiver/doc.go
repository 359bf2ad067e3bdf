// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:generate go tool -modfile=../../internal/tools/go.mod mdatagen metadata.yaml
//go:generate sed -i -e "s#^\\[otelcol-gpu\\(-full\\)*\\]: *#&../../cmd/otelcol-gpu/README.md#" -e "s#https://www.github.com/otelgpu/maintainers#../../MAINTAINERS.md#" README.md

// Package xplanereceiver reads XPlane profiles (*.xplane.pb), as jax.profiler writes them for JAX
// and other programs of XLA on GPUs, TPUs and CPUs, and turns them into spans.
//
// As a component of the Collector (type xplane) it follows folders or reads once. [ReadFile] is the
// function for other programs.
//
// # Format
//
// A file is a message XSpace (tsl/profiler/protobuf/xplane.proto): planes for the host and for each
// device, each with lines (a thread, a stream, or the steps, modules and operators of a TPU), each
// with events. Names and statistics of events are in tables of the plane, which may follow the
// lines. A file is therefore read twice: first the tables and the heads of lines, then the events.
//
//	/host:CPU               threads: steps, annotations, Python frames, calls of XLA; without a device its operators
//	/device:GPU:N           streams: kernels, copies and memsets, with the operator of XLA and launch parameters
//	/device:TPU:N           steps and operators, with FLOPs, bytes and the peaks of the device
//	Task Environment        the wall clock at the begin and the end of the profile
//
// Times are picoseconds in the file, and begin and end are rounded down to nanoseconds: sums of n
// events differ by √n ns from the sums of the file.
package xplanereceiver
