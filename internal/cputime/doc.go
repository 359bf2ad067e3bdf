// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package cputime measures the CPU time of the process for benchmarks.
package cputime
