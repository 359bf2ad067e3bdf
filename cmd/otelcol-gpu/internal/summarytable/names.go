// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"fmt"
	"slices"

	"github.com/mattn/go-runewidth"
)

// runes counts as terminals do: wide characters (Chinese, emoji) take two columns, regardless of
// the locale that may.
var runes = func() *runewidth.Condition {
	c := runewidth.NewCondition()
	c.EastAsianWidth, c.StrictEmojiNeutral = false, false
	return c
}()

func cells(s string) int { return runes.StringWidth(s) }

// shorten shortens the names of rows to a width. Names that would become equal are shortened in the
// middle instead. If they would still be equal, they are numbered, or, without a width, not
// shortened: rows always differ.
func shorten(rows [][]string, width int, fit bool) []string {
	count := map[string]int{}
	for _, r := range distinct(rows) {
		count[head(r, width)]++
		if m := middle(r, width); m != head(r, width) {
			count[m]++
		}
	}
	out := make([]string, len(rows))
	numbers := map[string]string{} // of whole names
	used := map[string]int{}
	for i, r := range rows {
		name := r[0]
		switch h, m := head(name, width), middle(name, width); {
		case cells(name) <= width, !fit && count[h] > 1 && count[m] > 1:
			out[i] = name
		case count[h] == 1:
			out[i] = h
		case count[m] == 1:
			out[i] = m
		default:
			if numbers[name] == "" {
				used[h]++
				numbers[name] = fmt.Sprintf("~%d", used[h])
			}
			out[i] = head(name, max(1, width-len(numbers[name]))) + numbers[name]
		}
	}
	return out
}

func distinct(rows [][]string) (names []string) {
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r[0]] {
			seen[r[0]] = true
			names = append(names, r[0])
		}
	}
	return names
}

func head(name string, width int) string { return runes.Truncate(name, width, "…") }

// middle keeps both ends.
func middle(name string, width int) string {
	if cells(name) <= width {
		return name
	}
	first := width / 2
	end := []rune(name)
	taken := 0
	for i, e := range slices.Backward(end) {
		if taken += runes.RuneWidth(e); taken > width-1-first {
			end = end[i+1:]
			break
		}
	}
	return runes.Truncate(name, first, "") + "…" + string(end)
}
