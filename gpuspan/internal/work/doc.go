// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package work holds the vocabulary of declared work: bytes, items, FLOPs and their sums.
package work
