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

// distance returns the Levenshtein distance of two texts, at most limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
