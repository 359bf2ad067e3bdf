// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	_ "modernc.org/sqlite" // database/sql driver "sqlite", without cgo
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
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it is empty", ErrNotExport)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case string(head[:n]) == "SQLite format 3\x00":
		return nil
	case strings.HasSuffix(path, ".nsys-rep"), strings.HasSuffix(path, ".qdrep"):
		return fmt.Errorf("%w: it is a report (export it with: nsys export --type sqlite)", ErrNotExport)
	}
	return fmt.Errorf("%w: it is no SQLite database", ErrNotExport)
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
