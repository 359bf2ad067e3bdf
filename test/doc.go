// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package test holds the end-to-end tests: real programs of other projects, with otelcol-gpu built
// from the working copy between them. They need no GPU. They are skipped with -short, and if a
// program is not available, except in CI (environment variable CI), where that is a failure.
package test
