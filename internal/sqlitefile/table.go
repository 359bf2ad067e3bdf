// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"errors"
	"fmt"
	"slices"
)

// Table is a table of a file.
type Table struct {
	file    *File
	root    uint32
	columns []column
	noRowid bool

	rowids map[int64]int64 // of Find, by value
	named  string          // the column that rowids are of
}

type column struct {
	name    string
	integer bool // INTEGER, and not INT
	hidden  bool // generated: not listed
	absent  bool // generated and not stored
	rowid   bool // INTEGER PRIMARY KEY: the rowid, and NULL in the record
	real    bool // whole numbers are stored as integers, and mean floating point ones
}

// Columns are the names of the columns as they were written, without generated ones.
func (t *Table) Columns() []string {
	var names []string
	for _, c := range t.columns {
		if !c.hidden {
			names = append(names, c.name)
		}
	}
	return names
}

// plan says where the values of a row go: the place in the record and the column, by place in the result.
type plan struct {
	place  []int // in the record, -1 for none
	column []*column
}

func (t *Table) plan(columns []string) (plan, error) {
	p := plan{place: make([]int, len(columns)), column: make([]*column, len(columns))}
	if t.noRowid {
		return p, errors.New("it is stored WITHOUT ROWID, which is not read")
	}
	for i, name := range columns {
		p.place[i] = -1
		stored := 0
		for k := range t.columns {
			c := &t.columns[k]
			if c.name == name && !c.absent {
				p.place[i], p.column[i] = stored, c
			}
			if !c.absent {
				stored++
			}
		}
	}
	return p, nil
}

// Each calls f for every row, in the order of rowids, with the values of the columns: int64, float64, string, []byte,
// or nil for NULL and for what the table or the row has not. The row is valid until f returns; its texts stay. An error
// of f ends the reading and is returned.
func (t *Table) Each(columns []string, f func(row []any) error) error {
	return t.each(columns, func(_ int64, row []any) error { return f(row) })
}

func (t *Table) each(columns []string, f func(rowid int64, row []any) error) error {
	p, err := t.plan(columns)
	if err != nil {
		return err
	}
	pages := t.file.pages // that may be visited: a tree refers to no page twice
	row := make([]any, len(columns))
	return t.walk(t.root, 0, &pages, func(x *node, i int) error {
		rowid, payload, err := t.file.record(x, i)
		if err == nil {
			err = t.file.fill(row, payload, rowid, p)
		}
		if err != nil {
			return err
		}
		return f(rowid, row)
	})
}

func (t *Table) walk(page uint32, depth int, pages *uint32, f func(*node, int) error) error {
	x, err := t.file.node(page)
	if err != nil {
		return err
	}
	if depth > maxDepth || *pages == 0 {
		return x.broken("a tree that refers to itself")
	}
	*pages--
	if x.leaf {
		for i := range x.cells {
			if err := f(&x, i); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range x.cells + 1 {
		child, _, err := x.child(i)
		if err != nil {
			return err
		}
		if err := t.walk(child, depth+1, pages, f); err != nil {
			return err
		}
	}
	return nil
}

// Find is the value of a column in the row whose key column has the value; nil where there is none. A key that is the
// table's INTEGER PRIMARY KEY is looked up in the tree; for any other an index is held in memory, of the first row with
// each value.
func (t *Table) Find(key string, value int64, result string) (any, error) {
	at := slices.IndexFunc(t.columns, func(c column) bool { return c.name == key })
	if at < 0 {
		return nil, nil
	}
	rowid := value
	if !t.columns[at].rowid {
		if t.named != key {
			if err := t.index(key); err != nil {
				return nil, err
			}
		}
		var ok bool
		if rowid, ok = t.rowids[value]; !ok {
			return nil, nil
		}
	}
	return t.lookup(rowid, result)
}

func (t *Table) index(key string) error {
	t.rowids, t.named = map[int64]int64{}, key
	return t.each([]string{key}, func(rowid int64, row []any) error {
		if v, ok := row[0].(int64); ok {
			if _, twice := t.rowids[v]; !twice {
				t.rowids[v] = rowid
			}
		}
		return nil
	})
}

func (t *Table) lookup(rowid int64, result string) (any, error) {
	p, err := t.plan([]string{result})
	if err != nil {
		return nil, err
	}
	page := t.root
	for range maxDepth {
		x, err := t.file.node(page)
		if err != nil {
			return nil, err
		}
		i, err := x.search(rowid)
		if err != nil {
			return nil, err
		}
		if !x.leaf {
			if page, _, err = x.child(i); err != nil {
				return nil, err
			}
			continue
		}
		if i == x.cells {
			return nil, nil
		}
		found, payload, err := t.file.record(&x, i)
		if err != nil || found != rowid {
			return nil, err
		}
		var row [1]any
		err = t.file.fill(row[:], payload, rowid, p)
		return row[0], err
	}
	return nil, fmt.Errorf("broken SQLite database: page %d: a tree that refers to itself", t.root)
}

// search is the first cell whose rowid is not less; the number of cells where there is none.
func (x *node) search(rowid int64) (int, error) {
	low, high := 0, x.cells
	for low < high {
		mid := (low + high) / 2
		c, err := x.cell(mid)
		if err != nil {
			return 0, err
		}
		skip := 4 // the child
		if x.leaf {
			_, skip = varint(c) // the length
		}
		key, n := varint(c[skip:])
		if n == 0 {
			return 0, x.broken("a cell that is cut off")
		}
		if int64(key) < rowid {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

// fill takes the values of a plan out of a record: the length of its header, the serial types of its values, the
// values.
func (d *File) fill(row []any, record []byte, rowid int64, p plan) error {
	clear(row)
	length, n := varint(record)
	if n == 0 || length < uint64(n) || length > uint64(len(record)) {
		return fmt.Errorf("broken SQLite database: row %d: its header is longer than it", rowid)
	}
	types, body := record[n:length], record[length:]
	for place := 0; len(types) > 0; place++ {
		kind, n := varint(types)
		size, ok := width(kind)
		if n == 0 || !ok || size > uint64(len(body)) {
			return fmt.Errorf("broken SQLite database: row %d: value %d is cut off", rowid, place+1)
		}
		for i, want := range p.place {
			if want != place {
				continue
			}
			v := d.value(kind, body[:size])
			if whole, ok := v.(int64); ok && p.column[i].real {
				v = float64(whole)
			}
			if v == nil && p.column[i].rowid {
				v = rowid
			}
			row[i] = v
		}
		types, body = types[n:], body[size:]
	}
	return nil
}
