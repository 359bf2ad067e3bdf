// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package access lets the packages of this module build on the values behind the types of package
// gpuspan, which users cannot reach. Package gpuspan sets the functions during initialization;
// arguments and results of type any are its types, which this package cannot name.
package access

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
)

// Conversions between the types of package gpuspan and the values behind them.
var (
	Engine  func(p any) *engine.Profiler // of a *gpuspan.Profiler; may return nil
	Stream  func(s any) *section.Stream  // of a *gpuspan.Stream; may return nil
	Section func(section.Section) any    // a gpuspan.Section
)
