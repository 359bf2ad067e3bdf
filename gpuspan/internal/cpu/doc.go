// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpu prefetches memory and reads the processor time of a thread, which the standard library
// does not do.
package cpu

// Start is the first field of a type whose memory [Prefetch] requests.
type Start struct{}
