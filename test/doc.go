// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package test holds the end-to-end tests: programs that others wrote, run for real, with otelcol-gpu built from the
// working copy between them. They need no GPU. They are skipped with -short, and where a program cannot be had, except
// in CI (environment variable CI), where that is a failure.
package test
