// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cputime tells benchmarks what the process has used of the processor.
package cputime
