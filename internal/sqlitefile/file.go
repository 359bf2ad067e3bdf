// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sqlitefile reads the tables of SQLite 3 databases, without SQL: whole tables row by row,
// and single rows by their rowid. Profiler exports need no more, and the package adds a fiftieth of
// the size of a database engine.
//
// It implements https://sqlite.org/fileformat2.html. Numbers are big-endian. A file is a sequence
// of pages of equal size, numbered from 1; the first begins with a header of 100 bytes:
//
//	offset  bytes
//	    16      2  page size; 1 means 65536
//	    20      1  bytes at the end of each page that are not used
//	    28      4  pages
//	    56      4  encoding of texts: 1 UTF-8, others UTF-16
//
// Page 1 is the root of the table sqlite_schema (type, name, tbl_name, rootpage, sql), which has
// the roots of the other tables.
//
// Not read: texts in UTF-16, tables WITHOUT ROWID or with generated columns, and a separate write-ahead
// log (errors), views and virtual tables (ignored), and DEFAULT values of columns that were added
// later (NULL).
package sqlitefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/otelgpu/otelgpu/internal/regularfile"
)

const (
	headerSize = 100
	magic      = "SQLite format 3\x00"
	// cachedBytes limits the cached pages, which are on the path to a row that is looked up.
	cachedBytes = 8 << 20
	// maxDepth limits the depth of a tree. Valid files stay below it: 20 levels have more rows than
	// rowids.
	maxDepth = 20
)

// journalMagic begins a journal that is needed to read the file; a journal that is no longer needed
// begins with zeros.
const journalMagic = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

// ErrTruncated is returned for a file whose end is missing.
var ErrTruncated = errors.New("it is truncated")

// File is an open database. It is not safe for concurrent use; a row may be looked up while a table
// is read.
type File struct {
	// Tables has the tables by name, without the engine's internal ones.
	Tables map[string]*Table

	f      *os.File
	size   int64 // of a page
	usable int   // of a page
	pages  uint32
	cache  map[uint32][]byte
}

// Open opens a file and reads the list of tables. Its errors name the broken page.
func Open(path string) (*File, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	return New(f)
}

// New is like Open, for an open file, which Close closes. It is closed if there is an error, too.
func New(f *os.File) (*File, error) {
	d := &File{Tables: map[string]*Table{}, f: f, cache: map[uint32][]byte{}}
	if err := errors.Join(unwritten(f.Name()), d.open()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// unwritten returns an error if the newest state of a database is in a separate log.
func unwritten(path string) error {
	if s, err := os.Stat(path + "-wal"); err == nil && s.Size() > 0 {
		return fmt.Errorf("changes of the SQLite database are in %s-wal and not yet in it: close the writing program, "+
			`or run sqlite3 %q "PRAGMA wal_checkpoint(TRUNCATE)"`, path, path)
	}
	f, err := regularfile.Open(path + "-journal")
	if err != nil {
		return nil //nolint:nilerr // there is none, or none that says anything
	}
	defer f.Close()
	var head [8]byte
	if _, err := f.ReadAt(head[:], 0); err == nil && string(head[:]) == journalMagic {
		return fmt.Errorf("the SQLite database is being written, or its writer was interrupted: %s-journal exists", path)
	}
	return nil
}

// Close closes the file.
func (d *File) Close() error { return d.f.Close() }

func (d *File) open() error {
	var head [headerSize]byte
	if _, err := d.f.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return fmt.Errorf("%w within its header", ErrTruncated)
	} else if err != nil {
		return fmt.Errorf("corrupt SQLite database: its header: %w", err)
	}
	if string(head[:len(magic)]) != magic {
		return errors.New("it is not an SQLite database")
	}
	d.size = int64(binary.BigEndian.Uint16(head[16:]))
	if d.size == 1 {
		d.size = 1 << 16
	}
	d.usable = int(d.size) - int(head[20])
	if d.size < 512 || d.size&(d.size-1) != 0 || d.usable < 480 {
		return fmt.Errorf("corrupt SQLite database: pages of %d bytes, %d of them in use", d.size, d.usable)
	}
	info, err := d.f.Stat()
	if err != nil {
		return err
	}
	d.pages = uint32(min(info.Size()/d.size, 1<<32-2))
	// The number of pages is valid where the counters of changes at 24 and 92 are equal.
	if n := binary.BigEndian.Uint32(head[28:]); bytes.Equal(head[24:28], head[92:96]) && n > d.pages {
		return fmt.Errorf("%w: %d of %d bytes are present", ErrTruncated, info.Size(), int64(n)*d.size)
	}
	if encoding := binary.BigEndian.Uint32(head[56:]); encoding > 1 {
		return fmt.Errorf("the texts of the SQLite database have the encoding %d, which is not read (export it with UTF-8)",
			encoding)
	}
	schema := &Table{file: d, root: 1, columns: []column{
		{name: "type"},
		{name: "name"},
		{name: "tbl_name"},
		{name: "rootpage"},
		{name: "sql"},
	}}
	return schema.Each([]string{"type", "name", "rootpage", "sql"}, func(row []any) error {
		kind, _ := row[0].(string)
		name, _ := row[1].(string)
		root, _ := row[2].(int64)
		text, _ := row[3].(string)
		if kind != "table" || root <= 0 || strings.HasPrefix(name, "sqlite_") {
			return nil
		}
		t, err := define(text)
		if err != nil {
			return fmt.Errorf("corrupt SQLite database: table %s: %w", name, err)
		}
		t.file, t.root = d, uint32(min(root, 1<<32-1))
		d.Tables[name] = t
		return nil
	})
}

// page returns a page of the file. The slice stays valid.
func (d *File) page(n uint32) ([]byte, error) {
	if b, ok := d.cache[n]; ok {
		return b, nil
	}
	if n == 0 || n > d.pages {
		return nil, fmt.Errorf("corrupt SQLite database: page %d of %d", n, d.pages)
	}
	b := make([]byte, d.size)
	if _, err := d.f.ReadAt(b, int64(n-1)*d.size); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("corrupt SQLite database: page %d: %w", n, err)
	}
	if int64(len(d.cache))*d.size >= cachedBytes {
		clear(d.cache)
	}
	d.cache[n] = b
	return b, nil
}

// word is a word of a statement. A quoted word is a name even if it equals a keyword.
type word struct {
	text   string
	quoted bool
}

func (w word) is(keywords ...string) bool {
	return !w.quoted && slices.ContainsFunc(keywords, func(k string) bool { return strings.EqualFold(w.text, k) })
}

// words splits a statement and drops comments and spaces. Each other character that is not part of
// a name is a word.
func words(s string) []word {
	var out []word
	for s != "" {
		switch c := s[0]; {
		case strings.IndexByte(" \t\n\f\r", c) >= 0:
			s = s[1:]
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
		case strings.IndexByte("\"`'[", c) >= 0:
			var w word
			w, s = quotation(s)
			out = append(out, w)
		default:
			n := 0
			for n < len(s) && (s[n] == '_' || s[n] == '$' || s[n] >= utf8.RuneSelf || '0' <= s[n] && s[n] <= '9' ||
				'a' <= s[n]|0x20 && s[n]|0x20 <= 'z') {
				n++
			}
			n = max(n, 1)
			out = append(out, word{text: s[:n]})
			s = s[n:]
		}
	}
	return out
}

// quotation returns the quoted word at the start of s, and the rest. A quote within it is doubled.
func quotation(s string) (w word, rest string) {
	end := s[0]
	if end == '[' {
		end = ']'
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] == end {
			if end == ']' || i+1 == len(s) || s[i+1] != end {
				return word{b.String(), true}, s[i+1:]
			}
			i++
		}
		b.WriteByte(s[i])
	}
	return word{b.String(), true}, ""
}

// define reads the columns from a CREATE TABLE statement
// (https://sqlite.org/lang_createtable.html).
func define(statement string) (*Table, error) {
	all := words(statement)
	open := slices.IndexFunc(all, func(w word) bool { return w.is("(") })
	if open < 0 {
		return nil, fmt.Errorf("%.100q names no columns", statement)
	}
	t := &Table{}
	depth, begin := 0, open+1
	for i := open; i < len(all); i++ {
		switch w := all[i]; {
		case w.is("("):
			depth++
		case w.is(")"):
			depth--
		case !w.is(",") || depth > 1:
			continue
		}
		if depth == 1 && all[i].is(",") || depth == 0 {
			t.define(all[begin:i])
			begin = i + 1
		}
		if depth == 0 {
			if slices.ContainsFunc(all[begin:], func(w word) bool { return w.is("WITHOUT") }) {
				t.unread = "it is one of the tables WITHOUT ROWID"
			}
			return t, nil
		}
	}
	return nil, fmt.Errorf("%.100q is truncated", statement)
}

// define adds one definition of a comma-separated list: a column, or a constraint of the table.
func (t *Table) define(def []word) {
	if len(def) > 2 && def[0].is("CONSTRAINT") {
		def = def[2:]
	}
	switch {
	case len(def) == 0 || def[0].is("UNIQUE", "CHECK", "FOREIGN"):
		return
	case def[0].is("PRIMARY"): // PRIMARY KEY (a): the rowid, where a is an INTEGER
		for i := range t.columns {
			if c := &t.columns[i]; len(def) >= 5 && def[4].is(")", "ASC", "DESC") && strings.EqualFold(c.name, def[3].text) {
				c.rowid = c.integer
			}
		}
		return
	}
	c := column{name: def[0].text}
	rest := def[1:]
	constraint := slices.IndexFunc(rest, func(w word) bool {
		return w.is("CONSTRAINT", "PRIMARY", "NOT", "NULL", "UNIQUE", "CHECK", "DEFAULT", "COLLATE", "REFERENCES",
			"GENERATED", "AS")
	})
	if constraint < 0 {
		constraint = len(rest)
	}
	var kind []string
	for _, w := range rest[:constraint] {
		kind = append(kind, strings.ToUpper(w.text))
	}
	c.integer = slices.Equal(kind, []string{"INTEGER"})
	c.real = isReal(strings.Join(kind, " "))
	depth := 0
	for i, w := range rest[constraint:] {
		following := rest[constraint+i+1:]
		switch {
		case w.is("("):
			depth++
		case w.is(")"):
			depth--
		case depth > 0:
		case w.is("PRIMARY"): // of all keys, INTEGER PRIMARY KEY DESC alone is none
			c.rowid = c.integer && (len(following) < 2 || !following[1].is("DESC"))
		case w.is("AS"):
			t.unread = "it has generated columns"
		}
	}
	t.columns = append(t.columns, c)
}

// isReal reports whether a column of the type stores floating-point numbers: section 3.1 of
// https://sqlite.org/datatype3.html.
func isReal(kind string) bool {
	for _, other := range []string{"INT", "CHAR", "CLOB", "TEXT", "BLOB"} {
		if strings.Contains(kind, other) {
			return false
		}
	}
	return strings.Contains(kind, "REAL") || strings.Contains(kind, "FLOA") ||
		strings.Contains(kind, "DOUB") //nolint:misspell // as the format says
}
