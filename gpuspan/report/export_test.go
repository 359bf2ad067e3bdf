// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import "time"

// Collector is what statistics.New returns.
type Collector = collector

// NewCollector returns a Collector with the clock of the host, unless WithClock sets another.
func NewCollector(opts ...Option) *Collector { return newCollector(time.Now, opts...) }

// WithClock sets the clock.
func WithClock(now func() time.Time) Option {
	return optionFunc(func(c *collector) { c.now = now })
}
