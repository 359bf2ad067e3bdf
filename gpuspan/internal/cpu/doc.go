// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cpu does with the processor what Go has no words for.
package cpu

// Start is the first field of a type whose memory [Prefetch] requests.
type Start struct{}
