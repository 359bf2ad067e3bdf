// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"fmt"
	"math"
)

// Checksum is the FNV-1a hash (64 bit) of a host buffer of float32, over the little-endian bytes of their bits, on
// every machine. Equal bits give equal sums; +0 and −0 differ, and so do NaNs of different bits. Source of the
// constants: Fowler, Noll, Vo, draft-eastlake-fnv.
func Checksum(data []float32) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, f := range data {
		b := math.Float32bits(f)
		h = (h ^ uint64(b&0xff)) * prime
		h = (h ^ uint64(b>>8&0xff)) * prime
		h = (h ^ uint64(b>>16&0xff)) * prime
		h = (h ^ uint64(b>>24)) * prime
	}
	return h
}

// Format writes a checksum as gpu.output.checksum holds it: 16 lower-case hex digits.
func Format(sum uint64) string { return fmt.Sprintf("%016x", sum) }
