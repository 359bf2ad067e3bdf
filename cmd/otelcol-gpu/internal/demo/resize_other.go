// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package demo

import "os"

// resizes says nothing: the size is asked for each second.
func resizes() (<-chan os.Signal, func()) { return nil, func() {} }
