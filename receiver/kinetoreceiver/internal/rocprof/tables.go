// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rocprof

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/regularfile"
)

// ErrTruncated is returned where a file ends within a record.
var ErrTruncated = errors.New("the file is truncated")

// Kernels is what the name of the table of kernels ends in. The other tables of a run have the same beginning.
const Kernels = "_kernel_trace.csv"

// IsKernels reports whether a file begins with the columns of a table of kernels. Tables of counters have them, too,
// and a row per counter.
func IsKernels(head []byte) bool {
	columns, _ := header(firstLine(head))
	return has(columns, "Kernel_Name", "Start_Timestamp", "End_Timestamp") && !has(columns, "Counter_Name")
}

// IsTable reports whether a file begins with the columns of another table of rocprofv3.
func IsTable(head []byte) bool {
	columns, _ := header(firstLine(head))
	return has(columns, "Start_Timestamp", "End_Timestamp") && has(columns, "Correlation_Id")
}

func firstLine(head []byte) []byte {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	return line
}

func has(columns map[string]int, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { _, ok := columns[name]; return !ok })
}

// header returns the positions of the columns, and how many there are.
func header(line []byte) (columns map[string]int, width int) {
	columns = map[string]int{}
	fields := split(nil, bytes.TrimRight(line, "\r\n"))
	for i, f := range fields {
		columns[string(f)] = i
	}
	return columns, len(fields)
}

// ReadTables reads a table of kernels, and the tables of the same run beside it: agents, HIP calls, copies and ranges
// of roctx. path is empty if kernels is not a file.
func ReadTables(p *profiletrace.Profile, path string, kernels io.Reader) (Run, error) {
	a := &adder{p: p}
	stem, named := strings.CutSuffix(path, Kernels)
	a.run.PID = integer(filepath.Base(stem))
	if named {
		for _, t := range []struct {
			ending string
			read   func(io.Reader) error
		}{
			{"_agent_info.csv", a.agentTable},
			{"_hip_api_trace.csv", func(f io.Reader) error { return a.rows(f, a.call) }},
			{"_marker_api_trace.csv", func(f io.Reader) error { return a.rows(f, a.marker) }},
			{"_memory_copy_trace.csv", func(f io.Reader) error { return a.rows(f, a.copied) }},
		} {
			if err := a.sibling(stem+t.ending, t.read); err != nil {
				return a.run, err
			}
		}
	}
	err := a.rows(kernels, a.kernel)
	return a.done(), err
}

// sibling reads a table beside the table of kernels, if it exists. What is wrong with it is a fault of the run only.
func (a *adder) sibling(path string, read func(io.Reader) error) error {
	f, err := regularfile.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer f.Close()
		err = read(f)
	}
	if err != nil && !errors.Is(err, errProfile) {
		a.run.Faults = append(a.run.Faults, fmt.Sprintf("%s: %v", filepath.Base(path), err))
		err = nil
	}
	return err
}

// errProfile marks errors of the profile, which end reading.
var errProfile = errors.New("cannot keep the record")

// row is a row of a table.
type row struct {
	columns map[string]int
	fields  [][]byte
}

func (r *row) text(column string) string {
	if i, ok := r.columns[column]; ok && i < len(r.fields) {
		return string(r.fields[i])
	}
	return ""
}

func (r *row) number(column string) int64 { return integer(r.text(column)) }

// maxRow bounds a row. Names of kernels have at most some thousand bytes.
const maxRow = 1 << 20

// rows calls each for the rows of a table.
func (a *adder) rows(from io.Reader, each func(*row) error) error {
	b := bufio.NewReaderSize(from, maxRow)
	r := row{}
	width := 0
	for n := int64(0); ; n++ {
		line, err := b.ReadSlice('\n')
		a.run.Bytes += int64(len(line))
		if errors.Is(err, bufio.ErrBufferFull) {
			a.p.Skip("row of more than 1 MiB")
			line, err = nil, a.skipLine(b)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		last := err != nil
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case len(line) == 0:
		case width == 0:
			r.columns, width = header(line)
			if !has(r.columns, "Start_Timestamp", "End_Timestamp") && !has(r.columns, "Agent_Type") {
				return errors.New("rocprofv3 writes other columns")
			}
		default:
			r.fields = split(r.fields[:0], line)
			if len(r.fields) < width {
				if last {
					return fmt.Errorf("%w: it ends within row %d", ErrTruncated, n)
				}
				a.p.Skip("row with too few columns")
			} else if err := each(&r); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

func (a *adder) skipLine(b *bufio.Reader) error {
	for {
		line, err := b.ReadSlice('\n')
		a.run.Bytes += int64(len(line))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// split appends the fields of a row: texts are in quotes, and a quote within them is doubled.
func split(fields [][]byte, line []byte) [][]byte {
	for more := true; more; {
		var text, field []byte
		rest, quoted := bytes.CutPrefix(line, []byte(`"`))
		if quoted {
			text, line = unquote(rest)
		}
		field, line, more = bytes.Cut(line, []byte(","))
		if !quoted {
			text = bytes.TrimSpace(field)
		}
		fields = append(fields, text)
	}
	return fields
}

// unquote returns the text up to the closing quote, and what follows it.
func unquote(b []byte) (text, rest []byte) {
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return b, nil
		}
		end := from + i
		if end+1 == len(b) || b[end+1] != '"' {
			return b[:end], b[end+1:]
		}
		b = append(b[:end:end], b[end+1:]...)
		from = end + 1
	}
}

// agentTable reads the list of agents.
func (a *adder) agentTable(f io.Reader) error {
	type listed struct {
		number int64
		gpu    bool
		model  string
		limits occupancy.Device
	}
	var all []listed
	if err := a.rows(f, func(r *row) error {
		if len(all) < maxAgents {
			all = append(all, listed{
				r.number("Node_Id"), r.text("Agent_Type") == "GPU", cmp.Or(r.text("Product_Name"), r.text("Name")),
				occupancy.Device{Target: r.text("Name"), Multiprocessors: r.number("Cu_Count")},
			})
		}
		return nil
	}); err != nil {
		return err
	}
	slices.SortStableFunc(all, func(x, y listed) int { return cmp.Compare(x.number, y.number) })
	for _, x := range all {
		a.agents.list(x.number, x.gpu, x.model, x.limits)
	}
	return nil
}

// passed adds a record.
func (a *adder) passed(r *record) error {
	if err := a.add(r); err != nil {
		return fmt.Errorf("%w: %w", errProfile, err)
	}
	return nil
}

// common reads what all tables of records have.
func common(r *row, kind event.Kind, name string) record {
	return record{
		kind: kind, name: name, start: r.number("Start_Timestamp"), end: r.number("End_Timestamp"),
		thread: r.number("Thread_Id"), correlation: r.number("Correlation_Id"), stream: r.number("Stream_Id"),
		queue: r.number("Queue_Id"),
	}
}

func (a *adder) kernel(r *row) error {
	x := common(r, event.KindKernel, strings.TrimSuffix(r.text("Kernel_Name"), ".kd"))
	x.agent = r.text("Agent_Id")
	for i, axis := range [...]string{"X", "Y", "Z"} {
		x.block[i], x.grid[i] = r.number("Workgroup_Size_"+axis), r.number("Grid_Size_"+axis)
	}
	x.hasGrid = has(r.columns, "Workgroup_Size_X", "Grid_Size_X")
	x.memory = r.number("LDS_Block_Size")
	x.needs = event.RocKernel{
		Vectors: r.number("VGPR_Count"), Accumulators: r.number("Accum_VGPR_Count"), Scalars: r.number("SGPR_Count"),
	}
	return a.passed(&x)
}

func (a *adder) call(r *row) error {
	a.run.PID = cmp.Or(r.number("Process_Id"), a.run.PID)
	x := common(r, event.KindRuntime, r.text("Function"))
	return a.passed(&x)
}

func (a *adder) marker(r *row) error {
	a.run.PID = cmp.Or(r.number("Process_Id"), a.run.PID)
	x := common(r, event.KindAnnotation, r.text("Function"))
	return a.passed(&x)
}

func (a *adder) copied(r *row) error {
	x := common(r, event.KindCopy, r.text("Direction"))
	x.agent, x.source = r.text("Destination_Agent_Id"), r.text("Source_Agent_Id")
	return a.passed(&x)
}
