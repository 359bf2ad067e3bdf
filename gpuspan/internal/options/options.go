// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package options applies the options of constructors.
package options

// All returns a function that applies options one after the other; a nil option does nothing. apply
// is the method of the option's interface: All(opts, Option.apply).
func All[O comparable, C any](opts []O, apply func(O, C)) func(C) {
	return func(c C) {
		var none O
		for _, o := range opts {
			if o != none {
				apply(o, c)
			}
		}
	}
}
