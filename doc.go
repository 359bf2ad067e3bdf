// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package otelgpu is the root of the Collector components of otelgpu; it has no code.
package otelgpu
