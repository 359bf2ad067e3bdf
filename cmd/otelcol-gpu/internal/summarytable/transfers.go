// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

var transferColumns = []column{
	{"COLLECTIVE", 0, false, false},
	{"SIZE", 1, true, false},
	{"TYPE", 2, false, true},
	{"GROUP", 3, false, true},
	{"RANKS", 4, true, true},
	{"COUNT", 5, true, false},
	{"TIME", 6, true, false},
	{"SHORTEST", 7, true, false},
	{"ALGORITHM GB/s", 8, true, false},
	{"BUS GB/s", 9, true, true},
	{"% LINK", 10, true, true},
	{"LINK", 11, false, true},
}

// maxTransfers is how many messages the table has.
const maxTransfers = 12

// RenderTransfers writes collectives by message, the longest first, and what their bandwidth is of.
// more is the number of messages that are not in the list.
func RenderTransfers(w io.Writer, list []facts.Transfer, more int, of string) error {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b facts.Transfer) int { return facts.LongerTransfer(&a, &b) })
	var rows [][]string
	for _, t := range list[:min(maxTransfers, len(list))] {
		size, shortest := finding.Size(t.Bytes), duration(t.Shortest.Seconds())
		if t.Bytes == 0 {
			size, shortest = "-", "-"
		}
		rows = append(rows, []string{
			printable.Line(t.Collective), size, printable.Line(t.ElementType), printable.Line(t.Members),
			count(t.Ranks), fmt.Sprint(t.Count), duration(t.Time.Seconds()), shortest,
			known("%.2f", t.Rate/1e9, 0.01), known("%.2f", t.BusRate/1e9, 0.01), known("%.1f", 100*t.LinkShare, 0.1), t.Link,
		})
	}
	var b strings.Builder
	write(&b, transferColumns, rows, Format{})
	if more += len(list) - len(rows); more > 0 {
		fmt.Fprintf(&b, "(%d more messages)\n", more)
	}
	fmt.Fprintf(&b, "Bandwidth is of %s.", of)
	if slices.ContainsFunc(list, func(t facts.Transfer) bool { return t.LinkRate > 0 }) {
		b.WriteString(" % LINK assumes that consecutive ranks share a host.")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
