// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package section

// prefetch requests the three cache lines of a slot that Start and End write, without waiting.
//
//go:noescape
func prefetch(sl *Slot)
