// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package dl loads C libraries at run time and calls them without cgo. Every byte of Go memory that C sees is passed
// through it: a [Frame] for the time of one call, [Address] for what C uses longer.
package dl
