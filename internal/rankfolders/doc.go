// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package rankfolders simulates folders of PyTorch profiles of the ranks of one job, with a late
// rank, a slow device, a slow link, or none of these, and with noise of several distributions. The
// analysis of jobs is compared with what was planted. The package's tests are its only content, so
// that nothing else can depend on it; the simulation imports nothing of the analysis.
package rankfolders
