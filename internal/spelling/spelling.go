// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package spelling finds the name that a misspelled one probably means.
package spelling

// Nearest returns the known name with the smallest edit distance to name, the first of several. It
// returns an empty string if more than a third of the letters of name differ.
func Nearest(name string, known []string) string {
	best, limit := "", len(name)/3+1
	for _, k := range known {
		if d := distance(name, k, limit); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// distance returns how many letters must be inserted, deleted, replaced or swapped with their
// neighbor to make b of a, at most limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return min(row[len(b)], limit)
}
