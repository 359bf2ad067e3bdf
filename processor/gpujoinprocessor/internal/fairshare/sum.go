// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare

// sum is a running sum with its rounding error carried along (Knuth's TwoSum). The integrals run for as long as a
// device is never idle, for months, and small differences of them are what a span gets.
type sum struct{ hi, lo float64 }

func (s *sum) add(x float64) {
	t := s.hi + x
	b := t - s.hi
	s.lo += (s.hi - (t - b)) + (x - b)
	s.hi = t
}

// since is s − old.
func (s sum) since(old sum) float64 { return (s.hi - old.hi) + (s.lo - old.lo) }
