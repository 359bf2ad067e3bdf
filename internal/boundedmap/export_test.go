// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package boundedmap

// Indexed returns the number of keys that Find searches.
func (r *Recent[K, V]) Indexed() int { return r.at.Len() }
