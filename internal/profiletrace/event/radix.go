// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

// sortByKey returns the entries of list in the order of their keys, entries of one key as they
// were. It needs spare, which is as long, and returns which of the two it does not need any more.
//
// It is a radix sort from the lowest digit up. Its time grows with the number of entries and the
// number of digits in which keys differ, four where they span an hour of nanoseconds; entries in
// order take one look.
func sortByKey(list, spare []entry) (sorted, rest []entry) {
	if len(list) == 0 {
		return list, spare
	}
	first, last := list[0].key, list[0].key
	inOrder := true
	for i := range list {
		k := list[i].key
		inOrder = inOrder && k >= last
		first, last = min(first, k), max(last, k)
	}
	if inOrder {
		return list, spare
	}
	const bits, base = 11, 1 << 11
	for shift := 0; uint64(last-first)>>shift > 0; shift += bits {
		var at [base]int // where the next entry of a digit goes
		for i := range list {
			at[uint64(list[i].key-first)>>shift%base]++
		}
		sum := 0
		for digit, n := range at {
			at[digit] = sum
			sum += n
		}
		for _, e := range list {
			digit := uint64(e.key-first) >> shift % base
			spare[at[digit]] = e
			at[digit]++
		}
		list, spare = spare, list
	}
	return list, spare
}
