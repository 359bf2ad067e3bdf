// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Command cudavector computes on an NVIDIA GPU without cgo and times what it does with gpuspan.
//
// It loads kernels (copy, saxpy, tiled matmul) as PTX through the CUDA driver, runs them, checks every result against
// the host's arithmetic, and prints where the time went. Where there is no GPU it computes on the CPU, timed with the
// host's clock, and says so.
//
//	go run ./cudavector -elements 16777216 -matrix 1024 -runs 20
package main
