// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package sqlitetest gives tests the SQLite engine, which writes the databases that they read and
// returns what they compare with. The engine takes 45 s of CPU to compile, so only programs built
// with -tags sqlite contain it; make test-integration sets the tag.
package sqlitetest

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Available reports whether the program contains the engine.
func Available() bool { return slices.Contains(sql.Drivers(), "sqlite") }

// Open opens a database, or skips the test if the program does not contain the engine.
func Open(t testing.TB, source string) *sql.DB {
	t.Helper()
	if !Available() {
		t.Skip("built without the SQLite engine: go test -tags sqlite")
	}
	db, err := sql.Open("sqlite", source)
	require.NoError(t, err)
	return db
}
