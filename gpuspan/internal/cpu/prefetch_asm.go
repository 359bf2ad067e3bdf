// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package cpu

// Prefetch requests the three cache lines from p on for writing, without waiting.
//
//go:noescape
func Prefetch(p *Start)
