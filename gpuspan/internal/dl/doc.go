// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package dl loads C libraries at run time and calls them without cgo.
package dl
