// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package hostclock

func counter() uint64 { return 0 }

func steady() bool { return false }
