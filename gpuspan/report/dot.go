// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteDOT writes the execution graph for Graphviz: sections (boxes) by nesting, the kernels that they launched
// (ellipses) and the modules that hold the kernels (folders). Edges carry counts. "dot -Tsvg" draws it.
func (s Summary) WriteDOT(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "digraph gpu {\n\trankdir=LR;\n\tnode [fontname=\"sans-serif\"];")
	kernels, modules := map[Kernel]int{}, map[string]int{}
	for i := range s.Operations {
		o := &s.Operations[i]
		label := fmt.Sprintf("%s\n%d × %s", o.Name, o.All.Count, shown(o.All.Duration.Mean, duration))
		fmt.Fprintf(b, "\ts%d [shape=box, label=%s];\n", i, dotQuote(label))
		if o.Parent >= 0 {
			fmt.Fprintf(b, "\ts%d -> s%d [label=\"%d\"];\n", o.Parent, i, o.All.Count)
		}
		for _, k := range o.Kernels {
			key := Kernel{Name: k.Name, Module: k.Module}
			id, ok := kernels[key]
			if !ok {
				id = len(kernels)
				kernels[key] = id
				fmt.Fprintf(b, "\tk%d [shape=ellipse, label=%s];\n", id, dotQuote(k.Name))
				if k.Module != "" {
					m, ok := modules[k.Module]
					if !ok {
						m = len(modules)
						modules[k.Module] = m
						fmt.Fprintf(b, "\tm%d [shape=folder, label=%s];\n", m, dotQuote(k.Module))
					}
					fmt.Fprintf(b, "\tk%d -> m%d [style=dashed];\n", id, m)
				}
			}
			fmt.Fprintf(b, "\ts%d -> k%d [label=\"%d\"];\n", i, id, k.Count)
		}
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

// dotQuote writes a quoted identifier of the DOT language, in which only the quote and the backslash are special.
func dotQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", "").Replace(s) + `"`
}
