// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ctest builds the C libraries that tests use instead of a GPU's driver and of a tool: a
// stub of libcuda, a stub of libamdhip64 and an NVTX injection library that records its calls.
//
// The stubs have a virtual clock with known drift, offset, tick and latencies, obey the documented
// rules on contexts, streams, events and captures, fail on demand, and report the true time of each
// event. They are built by gcc once in a process; without gcc the test is skipped. Every call of
// CUDA, HIP or Load makes a separate library, so that tests do not share state.
package ctest
