// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

// EnvLibrary names the environment variable with the path of libamdhip64.
const EnvLibrary = "GPUSPAN_HIP_LIBRARY"

// places are where libamdhip64 is; the version in the name is ROCm's major version.
var places = []string{
	"libamdhip64.so",
	"libamdhip64.so.7",
	"libamdhip64.so.6",
	"libamdhip64.so.5",
	"/opt/rocm/lib/libamdhip64.so",
}

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct{ library string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary names the file of libamdhip64. It goes before the environment variable GPUSPAN_HIP_LIBRARY and the usual
// places; the empty string means those.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }
