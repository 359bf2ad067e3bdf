// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !cgo

package demo

import "errors"

func openCUDA() (machine, string, error) {
	return nil, "", errors.New("this build does not load the CUDA driver (it needs Linux and cgo)")
}
