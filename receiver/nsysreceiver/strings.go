// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import "github.com/otelgpu/otelgpu/internal/sqlitefile"

// maxStrings bounds the texts that are held, in bytes. NVTX ranges with numbers in their texts make any number of them;
// kernels and calls have few, which come back.
const maxStrings = 16 << 20

// texts looks up StringIds by id, while another table is read.
type texts struct {
	table *sqlitefile.Table // nil where the file has no such table
	held  map[int64]string
	bytes int
}

// text is the text with an id, empty where there is none.
func (t *texts) text(id int64) (string, error) {
	if s, ok := t.held[id]; ok || t.table == nil {
		return s, nil
	}
	v, err := t.table.Find("id", id, "value")
	if err != nil {
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
