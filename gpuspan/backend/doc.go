// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package backend is what a device API must implement for package gpuspan to time work on it: events that are recorded
// on streams and told apart in time. gpuspan/cuda, gpuspan/hip and gpuspan/simgpu do.
package backend
