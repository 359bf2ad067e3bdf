// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profilefile"
	"github.com/otelgpu/otelgpu/internal/sqlitefile"
)

// ErrNotExport means that the file is not a SQLite export of Nsight Systems.
var ErrNotExport = errors.New("not an Nsight Systems SQLite export")

// database is an export that is open for reading.
type database struct{ *sqlitefile.File }

// open checks the kind of file before its tables are read.
func open(f *os.File) (*database, error) {
	if err := sniff(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file, err := sqlitefile.New(f)
	if errors.Is(err, sqlitefile.ErrTruncated) {
		err = fmt.Errorf("%w: %w", ErrNotExport, err)
	}
	if err != nil {
		return nil, err
	}
	// Newer versions add a number to the names of tables whose columns changed.
	for name, table := range file.Tables {
		base := versionOfTable.ReplaceAllString(name, "")
		if t := file.Tables[base]; base != name && t == nil {
			file.Tables[base] = table
		}
	}
	return &database{file}, nil
}

func sniff(f *os.File) error {
	head, err := io.ReadAll(io.NewSectionReader(f, 0, profilefile.HeadSize))
	switch {
	case err != nil:
		return err
	case len(head) == 0:
		return fmt.Errorf("%w: it is empty", ErrNotExport)
	case profilefile.IsSQLite(head):
		return nil
	}
	if what := profilefile.Foreign(f.Name(), head); what != "" {
		return fmt.Errorf("%w: %s", ErrNotExport, what)
	}
	return fmt.Errorf("%w: it is not an SQLite database", ErrNotExport)
}

func (d *database) has(table string) bool { return d.Tables[table] != nil }

// others are databases of other profilers, by a table that no export of Nsight Systems has.
// nvprof's have some of the names of its tables, and kernels under another one.
var others = []struct{ table, says string }{
	{"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "a database of nvprof (record with: nsys profile --trace=cuda,nvtx)"},
	{"StringTable", "a database of nvprof (record with: nsys profile --trace=cuda,nvtx)"},
	{"COMPUTE_TASK_INFO", "a database of Ascend's profiler (torch_npu, msprof), and work of NPUs is not read"},
	{"CANN_API", "a database of Ascend's profiler (torch_npu, msprof), and work of NPUs is not read"},
	{"OPS", "a database of rocprof (record with rocprofv3 --output-format json)"},
}

// useful returns an error that states why there is nothing to read.
func (d *database) useful() error {
	for _, o := range others {
		if d.has(o.table) {
			return fmt.Errorf("%w: it is %s", ErrNotExport, o.says)
		}
	}
	if slices.ContainsFunc([]string{tableKernel, tableCopy, tableMemset, tableGraph, tableRuntime, tableNVTX}, d.has) {
		return nil
	}
	if len(d.runs()) > 0 {
		return nil
	}
	if d.has(tableExport) || d.has(tableSession) || d.has(tableSystem) {
		return errors.New("the export has no CUDA or NVTX events (record with: nsys profile --trace=cuda,nvtx)")
	}
	return fmt.Errorf("%w: it has none of the tables CUPTI_ACTIVITY_KIND_* and NVTX_EVENTS", ErrNotExport)
}

// lists reports whether a table has a column.
func (d *database) lists(table, column string) bool {
	return d.has(table) && slices.Contains(d.Tables[table].Columns(), column)
}

var versionOfTable = regexp.MustCompile(`_V\d+$`)

// renamed are columns and their names in other versions of the export.
var renamed = map[string]string{"correlationId": "correlation", "shortName": "nameId"}

// each calls f for every row with the requested columns; missing ones are nil.
func (d *database) each(ctx context.Context, table string, columns []string, f func(row []any) error) error {
	t := d.Tables[table]
	if t == nil {
		return nil
	}
	columns = slices.Clone(columns)
	for i, c := range columns {
		if other := renamed[c]; other != "" && !d.lists(table, c) && d.lists(table, other) {
			columns[i] = other
		}
	}
	var own error // of f, which is returned as it is
	err := t.Each(columns, func(row []any) error {
		if own = ctx.Err(); own == nil {
			own = f(row)
		}
		return own
	})
	if err != nil && own == nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	return err
}

// number returns an integer of a row; ok is false for NULL and other types.
func number(v any) (int64, bool) {
	n, ok := v.(int64)
	return n, ok
}

func or(v any, otherwise int64) int64 {
	if n, ok := number(v); ok {
		return n
	}
	return otherwise
}

func word(v any) string {
	switch s := v.(type) {
	case string:
		return s
	case []byte:
		return string(s)
	}
	return ""
}
