// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitefile_test

import (
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/sqlitefile"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
)

// database creates a file with the SQLite engine.
func database(t testing.TB, statements ...string) string {
	path := filepath.Join(t.TempDir(), "a.sqlite")
	db := sqlitetest.Open(t, path)
	db.SetMaxOpenConns(1)
	begun := false
	for _, s := range statements {
		if !begun && !strings.HasPrefix(s, "PRAGMA") {
			_, err := db.Exec("BEGIN") // in one transaction, because otherwise each statement waits for the disk
			require.NoError(t, err)
			begun = true
		}
		_, err := db.Exec(s)
		require.NoError(t, err, s)
	}
	_, err := db.Exec("COMMIT")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return path
}

// same compares every table, column and row of a file with what the engine returns.
func same(t *testing.T, path string) (rows int) {
	f, err := sqlitefile.Open(path)
	require.NoError(t, err, path)
	defer f.Close()
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=ro&immutable=1"}
	db := sqlitetest.Open(t, u.String())
	defer db.Close()
	for name, columns := range engineTables(t, db) {
		table := f.Tables[name]
		require.NotNil(t, table, name)
		require.Equal(t, columns, table.Columns(), name)
		list := make([]string, len(columns))
		for i, c := range columns {
			list[i] = `"` + strings.ReplaceAll(c, `"`, `""`) + `"`
		}
		want, err := db.Query(fmt.Sprintf("SELECT %s FROM %q ORDER BY rowid", strings.Join(list, ", "), name))
		require.NoError(t, err)
		require.NoError(t, table.Each(columns, func(got []any) error {
			require.True(t, want.Next(), name)
			row, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				to[i] = &row[i]
			}
			require.NoError(t, want.Scan(to...))
			for i, v := range row {
				if b, ok := v.([]byte); ok && b == nil { // the driver returns empty blobs as nil
					row[i] = []byte{}
				}
			}
			require.Equal(t, row, got, name)
			rows++
			return nil
		}))
		require.False(t, want.Next(), name)
		require.NoError(t, want.Err())
		require.NoError(t, want.Close())
	}
	return rows
}

func engineTables(t *testing.T, db *sql.DB) map[string][]string {
	rows, err := db.Query("SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c " +
		"WHERE m.type = 'table' AND m.rootpage > 0 AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!'")
	require.NoError(t, err)
	defer rows.Close()
	tables := map[string][]string{}
	for rows.Next() {
		var table, column string
		require.NoError(t, rows.Scan(&table, &column))
		tables[table] = append(tables[table], column)
	}
	require.NoError(t, rows.Err())
	return tables
}

func TestTablesEqualTheEngines(t *testing.T) {
	for _, pragma := range []string{
		"PRAGMA page_size = 512", "PRAGMA page_size = 4096", "PRAGMA page_size = 65536",
		"PRAGMA auto_vacuum = FULL",
	} {
		t.Run(pragma, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			values := []string{
				"NULL", "0", "1", "-1", "127", "-128", "32768", "-8388608", "2147483648", "140737488355328", "-9223372036854775808",
				"9223372036854775807",
				"2.5", "-1e300", "3.0", "''", "'text µ 日本 😀'", "x'00ff'", "x''", "zeroblob(700)",
			}
			statements := []string{
				pragma,
				`CREATE TABLE plain (a INT, b REAL, c TEXT, d, "the ""e"" -- column" VARCHAR(30), [f (g] DOUBLE PRECISION, ` +
					"`h`" + ` FLOATING POINT)`,
				"CREATE TABLE alias (v TEXT, id INTEGER NOT NULL PRIMARY KEY /* the rowid, */ , w TEXT DEFAULT (1 + 2) CHECK (w <> ',')) -- end",
				"CREATE TABLE constrained (id INTEGER, v TEXT, CONSTRAINT k PRIMARY KEY (id), UNIQUE (v), FOREIGN KEY (id) REFERENCES plain(a))",
				"CREATE TABLE descending (id INTEGER PRIMARY KEY DESC, v TEXT)",
				"CREATE TABLE int_key (id INT PRIMARY KEY, v TEXT)",
				"CREATE TABLE two_keys (a INTEGER, b INTEGER, PRIMARY KEY (a, b))",
				"CREATE TABLE copied AS SELECT * FROM plain", "CREATE TABLE empty (a)", "CREATE VIEW seen AS SELECT a FROM plain",
				"CREATE INDEX by_a ON plain (a)",
			}
			value := func() string { return values[random.IntN(len(values))] }
			for i := range 150 {
				statements = append(statements, fmt.Sprintf("INSERT INTO plain VALUES (%s, %s, %s, %s, %s, %s, %s)",
					value(), value(), value(), value(), value(), value(), value()))
				long := strings.Repeat("é", random.IntN(3000))
				statements = append(statements, fmt.Sprintf("INSERT INTO alias (id, v) VALUES (%d, '%s')", i*i*7919-40000, long))
				statements = append(statements, fmt.Sprintf("INSERT INTO constrained VALUES (%d, 'v%d')", i*3, i))
			}
			statements = append(statements, "INSERT INTO descending VALUES (9, 'nine'), (3, 'three')",
				"INSERT INTO int_key VALUES (9, 'nine'), (3, 'three')",
				"INSERT INTO two_keys VALUES (1, 2), (2, NULL)", "INSERT INTO copied SELECT * FROM plain WHERE a > 0",
				"ALTER TABLE copied ADD COLUMN later INT", "INSERT INTO copied (a, later) VALUES (1, 2)",
				"DELETE FROM alias WHERE rowid % 5 = 0")
			path := database(t, statements...)
			assert.Greater(t, same(t, path), 500)
		})
	}
}

func TestTablesOfRecordedExportsEqualTheEngines(t *testing.T) {
	paths, err := filepath.Glob(recorded.Path(t, "nsys", "*", "*.sqlite"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	rows := 0
	for _, path := range paths {
		rows += same(t, path)
	}
	t.Logf("%d rows", rows)
	assert.Greater(t, rows, 10_000)
}

func TestFindReturnsRowsByKey(t *testing.T) {
	statements := []string{"CREATE TABLE alias (id INTEGER PRIMARY KEY, v TEXT)", "CREATE TABLE other (id INT, v TEXT)"}
	for i := range 1000 {
		for _, table := range []string{"alias", "other"} {
			statements = append(statements, fmt.Sprintf("INSERT INTO %s VALUES (%d, 'v%d')", table, 3*i-1000, i))
		}
	}
	statements = append(statements, "INSERT INTO other VALUES (-1000, 'a second one'), ('2', 'a text'), (NULL, 'none')")
	f, err := sqlitefile.Open(database(t, statements...))
	require.NoError(t, err)
	defer f.Close()
	for _, name := range []string{"alias", "other"} {
		find := func(id int64) any {
			v, err := f.Tables[name].Find("id", id, "v")
			require.NoError(t, err)
			return v
		}
		for i := range int64(1000) {
			require.Equal(t, fmt.Sprintf("v%d", i), find(3*i-1000), name)
			require.Nil(t, find(3*i-1001), name)
		}
		require.Nil(t, find(math.MaxInt64))
		require.Nil(t, find(math.MinInt64))
		v, err := f.Tables[name].Find("nothing", 1, "v")
		require.NoError(t, err)
		require.Nil(t, v)
		v, err = f.Tables[name].Find("id", -1000, "nothing")
		require.NoError(t, err)
		require.Nil(t, v)
	}
}

// A file whose newest rows are in a separate log must not be read as complete.
func TestOpenRejectsFilesWithAPendingLog(t *testing.T) {
	for mode, want := range map[string]string{"WAL": "-wal and not yet in it", "DELETE": "-journal exists"} {
		path := filepath.Join(t.TempDir(), "a.sqlite")
		db := sqlitetest.Open(t, path)
		db.SetMaxOpenConns(1)
		for _, s := range []string{
			"PRAGMA journal_mode = " + mode, "PRAGMA cache_size = 1", "CREATE TABLE a (v TEXT)", "INSERT INTO a VALUES ('x')",
			"BEGIN",
			"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO a SELECT i FROM n",
		} {
			_, err := db.Exec(s)
			require.NoError(t, err, s)
		}
		_, err := sqlitefile.Open(path)
		require.ErrorContains(t, err, want)
		_, err = db.Exec("COMMIT")
		require.NoError(t, err)
		require.NoError(t, db.Close())
		require.Equal(t, 20001, same(t, path))
	}
}

func TestUnsupportedFilesAreErrors(t *testing.T) {
	f, err := sqlitefile.Open(database(t, "CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT) WITHOUT ROWID",
		"INSERT INTO a VALUES (1, 'x')"))
	require.NoError(t, err)
	defer f.Close()
	require.EqualError(t, f.Tables["a"].Each([]string{"v"}, nil), "it is one of the tables WITHOUT ROWID, which are not read")
	_, err = f.Tables["a"].Find("v", 1, "id")
	require.ErrorContains(t, err, "WITHOUT ROWID")

	generated, err := sqlitefile.Open(database(t,
		"CREATE TABLE a (v INT, twice INT GENERATED ALWAYS AS (v * 2) VIRTUAL)", "CREATE TABLE b (v INT, w INT AS (v * 3) STORED)",
		"CREATE TABLE c (v INT DEFAULT (CAST('1' AS INT)))"))
	require.NoError(t, err)
	defer generated.Close()
	for _, name := range []string{"a", "b"} {
		require.EqualError(t, generated.Tables[name].Each([]string{"v"}, nil), "it has generated columns, which are not read")
	}
	require.NoError(t, generated.Tables["c"].Each([]string{"v"}, nil))
	_, err = sqlitefile.Open(database(t, "PRAGMA encoding = 'UTF-16le'", "CREATE TABLE a (v TEXT)"))
	require.EqualError(t, err, "the texts of the SQLite database have the encoding 2, which is not read (export it with UTF-8)")

	path := filepath.Join(t.TempDir(), "b")
	for text, want := range map[string]string{
		"":                       "its header",
		strings.Repeat("x", 200): "it is not an SQLite database",
		"SQLite format 3\x00" + strings.Repeat("\x00", 200): "pages of 0 bytes",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := sqlitefile.Open(path)
		require.ErrorContains(t, err, want)
	}
}

// FuzzBrokenFiles reads damaged files: reading ends, without a panic, and returns no more rows than
// fit into the file.
func FuzzBrokenFiles(f *testing.F) {
	path := database(f, "PRAGMA page_size = 512", "CREATE TABLE a (id INTEGER PRIMARY KEY, v TEXT, w REAL)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO a SELECT i, printf('%0*d', i * 7, i), i FROM n")
	whole, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(uint32(28), []byte{0, 0, 0, 1}, uint16(0))
	f.Add(uint32(512), []byte{5, 0, 0, 0xff, 0xff}, uint16(0))
	f.Add(uint32(516), []byte{0xff, 0xff, 0xff, 0xff}, uint16(77))
	f.Add(uint32(700), []byte("CREATE TABLE a (((((\"'"), uint16(0))
	for at := uint32(0); int(at) < len(whole); at += 509 {
		f.Add(at, []byte{0xff, 0x00, 0x02, 0xfe}, uint16(at%3))
	}
	f.Fuzz(func(t *testing.T, at uint32, with []byte, cut uint16) {
		b := append([]byte(nil), whole...)
		copy(b[int(at)%len(b):], with)
		b = b[:len(b)-int(cut)%len(b)]
		path := filepath.Join(t.TempDir(), "broken.sqlite")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		d, err := sqlitefile.Open(path)
		if err != nil {
			return
		}
		defer d.Close()
		for _, table := range d.Tables {
			rows := 0
			_ = table.Each(table.Columns(), func([]any) error { rows++; return nil })
			if rows > len(b) {
				t.Fatalf("%d rows in %d bytes", rows, len(b))
			}
			for _, id := range []int64{0, 1, 299, math.MaxInt64} {
				_, _ = table.Find("id", id, "v")
				_, _ = table.Find("w", id, "v")
			}
		}
	})
}
