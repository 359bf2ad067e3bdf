// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "fmt"

// logOutput writes the line of a section.
func (t *emitter) logOutput(r *record) {
	if t.outputsFailed || r.extra == nil || !r.extra.summed {
		return
	}
	defer t.p.guard("an output was logged")
	t.line = fmt.Appendf(t.line[:0], "%016x %d %q\n", r.extra.checksum, r.occurrence, r.op.op.cfg.Info.Name)
	if _, err := t.p.cfg.Outputs.Write(t.line); err != nil {
		t.outputsFailed = true
		t.p.errors.report("outputs", fmt.Errorf("cannot write the log of outputs: %w", err))
	}
}
