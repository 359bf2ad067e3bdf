// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct {
	library string
	domain  string
	ids     IDs
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary names the injection library; the empty string, the default, means what NVTX_INJECTION64_PATH names.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }

// WithDomain names the domain of the sections' ranges; default `gpuspan`.
func WithDomain(name string) Option { return optionFunc(func(c *config) { c.domain = name }) }

// IDs says how ranges carry the ids of their span, or of its parent where no ids are reserved (gpuspan.WithIDGenerator).
type IDs uint8

const (
	// IDsInMessage puts both ids into the text of ranges whose trace is sampled. The default.
	IDsInMessage IDs = iota
	// IDsInPayload puts the span id into the payload, as the unsigned number whose hexadecimal form it is.
	IDsInPayload
	// NoIDs leaves both out.
	NoIDs
)

// WithIDs says how ranges carry ids.
func WithIDs(ids IDs) Option { return optionFunc(func(c *config) { c.ids = ids }) }
