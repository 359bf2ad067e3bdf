// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"database/sql"
	"errors"
)

// maxStrings bounds the texts that are held, in bytes. NVTX ranges with numbers in their texts make any number of them;
// kernels and calls have few, which come back.
const maxStrings = 16 << 20

// texts looks up StringIds by id, while another query runs.
type texts struct {
	find  *sql.Stmt // nil where the file has no such table
	held  map[int64]string
	bytes int
}

func newTexts(ctx context.Context, db *database) (*texts, error) {
	t := &texts{held: map[int64]string{}}
	if !db.lists(tableStrings, "id", "value") {
		return t, nil
	}
	find, err := db.db.PrepareContext(ctx, `SELECT "value" FROM "`+tableStrings+`" WHERE "id" = ?`)
	t.find = find
	return t, err
}

func (t *texts) close() error {
	if t.find == nil {
		return nil
	}
	return t.find.Close()
}

// text is the text with an id, empty where there is none.
func (t *texts) text(ctx context.Context, id int64) (string, error) {
	if s, ok := t.held[id]; ok || t.find == nil {
		return s, nil
	}
	var v any
	if err := t.find.QueryRowContext(ctx, id).Scan(&v); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", err
	}
	const overhead = 64 // of a map's entry
	s := word(v)
	if t.bytes += len(s) + overhead; t.bytes > maxStrings {
		clear(t.held)
		t.bytes = len(s) + overhead
	}
	t.held[id] = s
	return s, nil
}
