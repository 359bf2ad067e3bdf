// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitefile

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf16"
)

// A page of a table's tree:
//
//	offset  bytes
//	     0      1  13 leaf, 5 interior
//	     3      2  cells
//	     8      4  interior only: the child behind the last cell
//	 8, 12     2n  offsets of the cells, in the order of rowids
//
// A cell of a leaf is the length of the record, the rowid, and the record; one of an interior page is a child (4 bytes)
// and the greatest rowid in it. Lengths and rowids are varints: 7 bits a byte, the greatest first, 8 bits of a ninth
// byte. Page 1 has the file's header before it.
const (
	leafPage     = 13
	interiorPage = 5
)

// node is a page of a tree.
type node struct {
	number uint32
	b      []byte // the page's used bytes
	at     int    // of the page's own header in b
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
		return node{}, x.broken("it is of no table with rowids")
	}
	x.cells = int(binary.BigEndian.Uint16(b[x.at+3:]))
	if x.at+12+2*x.cells > len(x.b) {
		return node{}, x.broken("more cells than it can hold")
	}
	return x, nil
}

func (x *node) broken(what string) error {
	return fmt.Errorf("broken SQLite database: page %d: %s", x.number, what)
}

// cell is the page from cell i on.
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

// child is child i of an interior page and the greatest rowid in it; the last child, after all cells, has none.
func (x *node) child(i int) (page uint32, greatest int64, err error) {
	if i == x.cells {
		return binary.BigEndian.Uint32(x.b[x.at+8:]), math.MaxInt64, nil
	}
	c, err := x.cell(i)
	if err != nil {
		return 0, 0, err
	}
	key, n := varint(c[4:])
	if n == 0 {
		return 0, 0, x.broken("a cell that is cut off")
	}
	return binary.BigEndian.Uint32(c), int64(key), nil
}

// record is the rowid and the record of cell i of a leaf. What does not fit into the page lies in a chain of overflow
// pages, each the number of the next and a piece of the record. max is the length from which a record is refused.
func (d *File) record(x *node, i int) (rowid int64, payload []byte, err error) {
	c, err := x.cell(i)
	if err != nil {
		return 0, nil, err
	}
	length, n := varint(c)
	id, k := varint(c[n:])
	if n == 0 || k == 0 {
		return 0, nil, x.broken("a cell that is cut off")
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
		return 0, nil, x.broken("a record that is longer than the file")
	}
	if local == length {
		return int64(id), c[:local], nil
	}
	if local+4 > uint64(len(c)) {
		return 0, nil, x.broken("a record that is cut off")
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

// varint is the number at the beginning of b and the bytes that it takes; none where it is cut off.
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

// value is one of a record: its serial type says what and how long it is.
//
//	type      bytes
//	   0          0  NULL
//	1…6  1,2,3,4,6,8 integer
//	   7          8  IEEE 754
//	8, 9          0  0 and 1
//	even  (type-12)/2  blob, from 12 on
//	odd   (type-13)/2  text, from 13 on
func (d *File) value(kind uint64, b []byte) any {
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
	case d.encoding <= 1:
		return string(b)
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if d.encoding == 3 {
		order = binary.BigEndian
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}

// width is the number of bytes of a serial type; ok is false for the types that do not exist.
func width(kind uint64) (n uint64, ok bool) {
	switch {
	case kind <= 9:
		return [...]uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0}[kind], true
	case kind < 12:
		return 0, false
	}
	return (kind - 12) / 2, true
}
