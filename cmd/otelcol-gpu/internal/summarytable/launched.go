// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable

import (
	"fmt"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Kernels adds how kernels were launched, by name, to their rows.
func (t *Table) Kernels(list []facts.Kernel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range list {
		k := &list[i]
		l := t.fill[k.Name]
		if l == nil {
			if len(t.fill) >= maxOperations {
				continue
			}
			l = &facts.Launched{}
			t.fill[k.Name] = l
		}
		l.Add(&k.Launched)
	}
}

// launched returns the columns on how the kernels of an operation were launched.
func (t *Table) launched(op *key) (occupancy, waves, registers string) {
	l := t.fill[op.name]
	if l == nil || op.kind != semconv.GPUOperationTypeKernel && op.kind != semconv.GPUOperationTypeCollective {
		return "-", "-", "-"
	}
	registers = "-"
	if l.Registers > 0 {
		registers = fmt.Sprint(l.Registers)
	}
	return known("%.1f", 100*l.Occupancy.Value(), 0.1), known("%.2f", l.Waves.Value(), 0.01), registers
}

// known formats a value that is 0 if it is unknown, never as 0.
func known(format string, v, least float64) string {
	switch {
	case v == 0:
		return "-"
	case v < least:
		return fmt.Sprint("<", least)
	}
	return fmt.Sprintf(format, v)
}
