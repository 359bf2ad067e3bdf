// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

// Fall tells a wrong reading of a counter from a reset: after a reset the counter starts below its
// earlier value and counts, after a wrong reading it returns to that at once. The zero value is for
// a counter that has not fallen.
type Fall struct{ before float64 } // the value before it fell, until it increases

// Returns reports whether a reading follows wrong ones, and by how much the counter increased since
// the reading before these.
func (f *Fall) Returns(last, next float64) (increase float64, ok bool) {
	before := f.before
	switch {
	case next < last:
		f.before = max(before, last)
	case next > last:
		f.before = 0
		return next - before, before > 0 && next >= before
	}
	return 0, false
}
