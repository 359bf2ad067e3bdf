// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package vocabulary knows what the names in profiles mean: which kernels communicate or move bytes
// only, which calls launch, wait or allocate, which frames load data, which operators are a phase
// of a step.
//
// All functions are pure and read one name. Readers and the analysis share them, so that a name
// means the same in every profiler's file.
package vocabulary
