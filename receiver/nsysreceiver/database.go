// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // database/sql driver "sqlite", without cgo

	"github.com/otelgpu/otelgpu/internal/profilefile"
)

// ErrNotExport says that the file is no SQLite export of Nsight Systems.
var ErrNotExport = errors.New("not an Nsight Systems SQLite export")

// database is an export that is open for reading.
type database struct {
	db     *sql.DB
	tables map[string][]string // columns by table
}

// open checks what the file is before SQLite does: its own messages do not say.
func open(ctx context.Context, path string) (*database, error) {
	if err := sniff(path); err != nil {
		return nil, err
	}
	// immutable: no lock and no journal beside the file, which may lie on a read-only file system.
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=ro&immutable=1"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2) // a table, and the texts that its rows name
	d := &database{db: db, tables: map[string][]string{}}
	if err := d.schema(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	return d, nil
}

func sniff(path string) error {
	head, err := profilefile.Head(path)
	switch {
	case err != nil:
		return err
	case len(head) == 0:
		return fmt.Errorf("%w: it is empty", ErrNotExport)
	case profilefile.IsSQLite(head):
		return whole(path, head)
	}
	if what := profilefile.Foreign(path, head); what != "" {
		return fmt.Errorf("%w: %s", ErrNotExport, what)
	}
	return fmt.Errorf("%w: it is no SQLite database", ErrNotExport)
}

// whole compares the length of the file with what its header says (file format, section 1.3: page size at 16, pages at 28,
// which are valid where the counters at 24 and 92 are equal). SQLite itself notices a missing end only when a query comes to a
// page that is not there.
func whole(path string, head []byte) error {
	const header = 100
	if len(head) < header {
		return fmt.Errorf("%w: it is cut off after %d bytes", ErrNotExport, len(head))
	}
	page := int64(binary.BigEndian.Uint16(head[16:]))
	if page == 1 {
		page = 1 << 16
	}
	pages := int64(binary.BigEndian.Uint32(head[28:]))
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(head[24:]) == binary.BigEndian.Uint32(head[92:]) && info.Size() < page*pages {
		return fmt.Errorf("%w: it is cut off: %d of %d bytes are there", ErrNotExport, info.Size(), page*pages)
	}
	return nil
}

func (d *database) schema(ctx context.Context) error {
	rows, err := d.db.QueryContext(ctx, "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view')")
	if err != nil {
		return fmt.Errorf("broken SQLite database: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var t, c string
		if err := rows.Scan(&t, &c); err != nil {
			return err
		}
		d.tables[t] = append(d.tables[t], c)
	}
	return rows.Err()
}

func (d *database) has(table string) bool { return d.tables[table] != nil }

// useful reports by an error why there is nothing to read.
func (d *database) useful() error {
	if slices.ContainsFunc([]string{tableKernel, tableCopy, tableMemset, tableGraph, tableRuntime, tableNVTX}, d.has) {
		return nil
	}
	for t := range d.tables {
		if strings.HasPrefix(t, "rocpd_") {
			return fmt.Errorf("%w: it is a rocpd database of rocprofv3 (record with --output-format json)", ErrNotExport)
		}
	}
	if d.has(tableExport) || d.has(tableSession) || d.has(tableSystem) {
		return errors.New("the export has no CUDA or NVTX events (record with: nsys profile --trace=cuda,nvtx)")
	}
	return fmt.Errorf("%w: it has none of the tables CUPTI_ACTIVITY_KIND_* and NVTX_EVENTS", ErrNotExport)
}

// lists reports whether a table has all the columns.
func (d *database) lists(table string, columns ...string) bool {
	for _, c := range columns {
		if !slices.Contains(d.tables[table], c) {
			return false
		}
	}
	return true
}

// each calls f for every row with the columns that were asked for; those that the file lacks are NULL.
func (d *database) each(ctx context.Context, table string, columns []string, f func(row []any) error) error {
	have := d.tables[table]
	if have == nil {
		return nil
	}
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = "NULL"
		if slices.Contains(have, c) {
			list[i] = `"` + c + `"`
		}
	}
	rows, err := d.db.QueryContext(ctx, "SELECT "+strings.Join(list, ", ")+` FROM "`+table+`"`)
	if err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	defer rows.Close()
	row := make([]any, len(columns))
	to := make([]any, len(columns))
	for i := range row {
		to[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
		if err := f(row); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("table %s: %w", table, err)
	}
	return nil
}

// number is a whole number of a row; ok is false for NULL and for everything that is none.
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
