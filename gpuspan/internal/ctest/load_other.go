// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package ctest

import "errors"

// Never called: build has skipped the test.
func dlopen(string) (uintptr, error)    { return 0, errors.ErrUnsupported }
func registerFunc(any, uintptr, string) {}
