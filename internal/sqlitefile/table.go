// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// A page of a table's tree:
//
//	offset  bytes
//	     0      1  13 leaf, 5 interior
//	     3      2  cells
//	     8      4  interior only: the child behind the last cell
//	 8, 12     2n  offsets of the cells, in the order of rowids
//
// A cell of a leaf is the length of the record, the rowid, and the record; a cell of an interior
// page is a child (4 bytes) and the greatest rowid in it. Lengths and rowids are varints: 7 bits a
// byte, the most significant first, 8 bits of a ninth byte. On page 1 they follow the file's
// header.
const (
	leafPage     = 13
	interiorPage = 5
)

// node is a page of a tree.
type node struct {
	number uint32
	b      []byte // the page's used bytes
	at     int    // offset of the page's own header in b
	leaf   bool
	cells  int
}

func (d *File) node(n uint32) (node, error) {
	b, err := d.page(n)
	if err != nil {
		return node{}, err
	}
	x := node{number: n, b: b[:d.usable]}
	if n == 1 {
		x.at = headerSize
	}
	switch b[x.at] {
	case leafPage:
		x.leaf = true
	case interiorPage:
	default:
		return node{}, x.broken("it does not belong to a table with rowids")
	}
	x.cells = int(binary.BigEndian.Uint16(b[x.at+3:]))
	if x.at+12+2*x.cells > len(x.b) {
		return node{}, x.broken("more cells than it can hold")
	}
	return x, nil
}

func (x *node) broken(what string) error {
	return fmt.Errorf("corrupt SQLite database: page %d: %s", x.number, what)
}

// cell returns the page from cell i on.
func (x *node) cell(i int) ([]byte, error) {
	at := x.at + 12 + 2*i
	if x.leaf {
		at -= 4
	}
	if at = int(binary.BigEndian.Uint16(x.b[at:])); at+4 > len(x.b) {
		return nil, x.broken("a cell outside of it")
	}
	return x.b[at:], nil
}

// child returns child i of an interior page; the last one follows all cells.
func (x *node) child(i int) (page uint32, err error) {
	if i == x.cells {
		return binary.BigEndian.Uint32(x.b[x.at+8:]), nil
	}
	c, err := x.cell(i)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(c), nil
}

// record returns the rowid and the record of cell i of a leaf. The part of a record that does not
// fit into the page is in a chain of overflow pages: each has the number of the next one and a
// piece of the record.
func (d *File) record(x *node, i int) (rowid int64, payload []byte, err error) {
	c, err := x.cell(i)
	if err != nil {
		return 0, nil, err
	}
	length, n := varint(c)
	id, k := varint(c[n:])
	if n == 0 || k == 0 {
		return 0, nil, x.broken("a truncated cell")
	}
	c = c[n+k:]
	local, u := length, uint64(d.usable)
	if length > u-35 {
		least := (u-12)*32/255 - 23
		if local = least + (length-least)%(u-4); local > u-35 {
			local = least
		}
	}
	if local > uint64(len(c)) || length > uint64(d.pages)*u {
		return 0, nil, x.broken("a record longer than the file")
	}
	if local == length {
		return int64(id), c[:local], nil
	}
	if local+4 > uint64(len(c)) {
		return 0, nil, x.broken("a truncated record")
	}
	next := binary.BigEndian.Uint32(c[local:])
	payload = append([]byte(nil), c[:local]...)
	for uint64(len(payload)) < length {
		b, err := d.page(next)
		if err != nil {
			return 0, nil, err
		}
		piece := b[4:d.usable]
		payload = append(payload, piece[:min(uint64(len(piece)), length-uint64(len(payload)))]...)
		next = binary.BigEndian.Uint32(b)
	}
	return int64(id), payload, nil
}

// varint returns the number at the beginning of b and its length in bytes, 0 if it is truncated.
func varint(b []byte) (v uint64, n int) {
	for n = range min(len(b), 9) {
		if n == 8 {
			return v<<8 | uint64(b[n]), 9
		}
		v = v<<7 | uint64(b[n]&0x7f)
		if b[n] < 0x80 {
			return v, n + 1
		}
	}
	return 0, 0
}

// value returns a value of a record: its serial type determines its type and length.
//
//	type      bytes
//	   0          0  NULL
//	1…6  1,2,3,4,6,8 integer
//	   7          8  IEEE 754
//	8, 9          0  0 and 1
//	even  (type-12)/2  blob, from 12 on
//	odd   (type-13)/2  text, from 13 on
func value(kind uint64, b []byte) any {
	switch {
	case kind == 0:
		return nil
	case kind <= 6:
		v := int64(int8(b[0]))
		for _, x := range b[1:] {
			v = v<<8 | int64(x)
		}
		return v
	case kind == 7:
		return math.Float64frombits(binary.BigEndian.Uint64(b))
	case kind <= 9:
		return int64(kind - 8)
	case kind%2 == 0:
		return append([]byte{}, b...)
	}
	return string(b)
}

// width returns the number of bytes of a serial type; ok is false for types that do not exist.
func width(kind uint64) (n uint64, ok bool) {
	switch {
	case kind <= 9:
		return [...]uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0}[kind], true
	case kind < 12:
		return 0, false
	}
	return (kind - 12) / 2, true
}

// Table is a table of a file.
type Table struct {
	file    *File
	root    uint32
	columns []column
	unread  string // why its rows are not read

	rowids map[int64]int64 // of Find, by value
	named  string          // the column that rowids indexes
}

type column struct {
	name    string
	integer bool // INTEGER, and not INT
	rowid   bool // INTEGER PRIMARY KEY: the rowid, and NULL in the record
	real    bool // REAL: whole numbers are stored as integers
}

// Columns returns the names of the columns as written in the statement.
func (t *Table) Columns() []string {
	var names []string
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	return names
}

// find returns the columns by their names, -1 for none.
func (t *Table) find(names ...string) ([]int, error) {
	if t.unread != "" {
		return nil, fmt.Errorf("%s, which are not read", t.unread)
	}
	columns := make([]int, len(names))
	for i, name := range names {
		columns[i] = slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
	}
	return columns, nil
}

// Each calls f for every row, in the order of rowids, with the values of the columns: int64,
// float64, string, []byte, or nil for NULL and for a column that the table or the row does not
// have. The row is valid until f returns; its strings stay valid. An error of f ends the reading
// and is returned.
func (t *Table) Each(columns []string, f func(row []any) error) error {
	return t.each(columns, func(_ int64, row []any) error { return f(row) })
}

func (t *Table) each(names []string, f func(rowid int64, row []any) error) error {
	columns, err := t.find(names...)
	if err != nil {
		return err
	}
	pages := t.file.pages // page visits left: a tree refers to no page twice
	row := make([]any, len(columns))
	return t.walk(t.root, 0, &pages, func(x *node, i int) error {
		rowid, payload, err := t.file.record(x, i)
		if err == nil {
			err = t.fill(row, payload, rowid, columns)
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
		return x.broken("a cyclic tree")
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
		child, err := x.child(i)
		if err != nil {
			return err
		}
		if err := t.walk(child, depth+1, pages, f); err != nil {
			return err
		}
	}
	return nil
}

// Find returns the value of a column in the row whose key column has the value, nil if there is
// none. It finds an INTEGER PRIMARY KEY in the tree; for any other key it keeps an index in memory,
// of the first row with each value.
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
	columns, err := t.find(result)
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
			if page, err = x.child(i); err != nil {
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
		err = t.fill(row[:], payload, rowid, columns)
		return row[0], err
	}
	return nil, fmt.Errorf("corrupt SQLite database: page %d: a cyclic tree", t.root)
}

// search returns the first cell whose rowid is not less, the number of cells if there is none.
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
			return 0, x.broken("a truncated cell")
		}
		if int64(key) < rowid {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, nil
}

// fill sets the values of columns from a record: the length of its header, the serial types of its
// values, the values.
func (t *Table) fill(row []any, record []byte, rowid int64, columns []int) error {
	clear(row)
	length, n := varint(record)
	if n == 0 || length < uint64(n) || length > uint64(len(record)) {
		return fmt.Errorf("corrupt SQLite database: row %d: its header is longer than the row", rowid)
	}
	types, body := record[n:length], record[length:]
	for stored := 0; len(types) > 0; stored++ {
		kind, n := varint(types)
		size, ok := width(kind)
		if n == 0 || !ok || size > uint64(len(body)) {
			return fmt.Errorf("corrupt SQLite database: row %d: value %d is truncated", rowid, stored+1)
		}
		for i, column := range columns {
			if column != stored {
				continue
			}
			v := value(kind, body[:size])
			if whole, ok := v.(int64); ok && t.columns[column].real {
				v = float64(whole)
			}
			if v == nil && t.columns[column].rowid {
				v = rowid
			}
			row[i] = v
		}
		types, body = types[n:], body[size:]
	}
	return nil
}
