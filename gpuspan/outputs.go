// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Output is the checksum of one section's output, for comparing runs.
type Output struct {
	Operation  string // name of the operation
	Occurrence int64  // its number in the run, from 1
	Checksum   uint64 // as the section stated it
}

// WithOutputLog writes a line for each section that states a checksum ([Section.Checksum]), in the order in which they are read back: that of the
// stream, and any order between streams. [ReadOutputs] reads the lines of a run, [FirstDivergence] compares two. Sections that are not timed
// are missing, so trace every request of both runs, or use [MetricsAll]. The polling thread writes, so w should not block; an error ends the log.
//
//	format: checksum (16 hex digits), occurrence, operation as a Go string; one space between them
//	cbf29ce484222325 1 "layer 1"
func WithOutputLog(w io.Writer) Option { return optionFunc(func(c *config) { c.outputs = w }) }

// logOutput writes the line of a section. Polling thread.
func (t *poller) logOutput(r *record) {
	if t.p.cfg.outputs == nil || t.outputsFailed || r.extra == nil || !r.extra.summed {
		return
	}
	defer t.p.guard("an output was logged")
	t.line = fmt.Appendf(t.line[:0], "%016x %d %q\n", r.extra.checksum, r.occurrence, r.op.op.info.Name)
	if _, err := t.p.cfg.outputs.Write(t.line); err != nil {
		t.outputsFailed = true
		t.p.errors.report("outputs", fmt.Errorf("cannot write the log of outputs: %w", err))
	}
}

// ReadOutputs reads what [WithOutputLog] wrote. With an error, which names the line, the result holds the lines before it.
func ReadOutputs(r io.Reader) ([]Output, error) {
	var out []Output
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		o, err := parseOutput(lines.Text())
		if err != nil {
			return out, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, o)
	}
	if err := lines.Err(); err != nil {
		return out, fmt.Errorf("cannot read outputs: %w", err)
	}
	return out, nil
}

var errOutput = errors.New(`must be a checksum of 16 hex digits, a number from 1 and a quoted name, as in cbf29ce484222325 1 "layer 1"`)

func parseOutput(line string) (o Output, err error) {
	sum, rest, _ := strings.Cut(line, " ")
	number, name, _ := strings.Cut(rest, " ")
	o.Checksum, err = strconv.ParseUint(sum, 16, 64)
	if err == nil {
		o.Occurrence, err = strconv.ParseInt(number, 10, 64)
	}
	if err == nil {
		o.Operation, err = strconv.Unquote(name)
	}
	if err != nil || len(sum) != 16 || o.Occurrence < 1 {
		return Output{}, fmt.Errorf("%w, found %q", errOutput, line)
	}
	return o, nil
}

// FirstDivergence is the index of the first output in which two runs differ: another operation or occurrence, or another sum.
// Where one run is a prefix of the other it is the shorter one's length. false: the runs agree.
func FirstDivergence(a, b []Output) (int, bool) {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i, true
		}
	}
	return n, len(a) != len(b)
}
