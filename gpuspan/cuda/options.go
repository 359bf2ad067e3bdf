// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct{ library string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary names the file of libcuda. It goes before the environment variable GPUSPAN_CUDA_LIBRARY and the usual
// places; the empty string means those.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }
