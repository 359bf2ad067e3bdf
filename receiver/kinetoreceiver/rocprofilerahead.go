// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// keep writes the records of a process to a temporary file, because what names them follows.
func (r *rocprofiler) keep() error {
	if r.ahead == nil {
		f, err := event.CreateTemp(r.c.opts.TempDir)
		if err != nil {
			return fmt.Errorf("cannot keep records that precede their names (set `temp_dir`): %w", err)
		}
		r.ahead = f
	}
	w := bufio.NewWriter(r.ahead)
	fmt.Fprint(w, "{")
	between := ""
	err := r.object(func(key string) error {
		if r.reader(key) == nil {
			return r.pass()
		}
		fmt.Fprintf(w, "%s%q:[", between, key)
		comma := ""
		err := list(r, key, func(record *json.RawMessage) error {
			_, err := fmt.Fprintf(w, "%s%s", comma, *record)
			comma = ","
			return err
		})
		fmt.Fprint(w, "]")
		between = ","
		return err
	})
	fmt.Fprint(w, "}")
	return cmp.Or(err, w.Flush())
}

// replay reads the records that were kept.
func (r *rocprofiler) replay() error {
	if r.ahead == nil {
		return nil
	}
	defer r.discard()
	defer func(outer *json.Decoder) { r.json = outer }(r.json)
	if _, err := r.ahead.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cannot read the records that precede their names: %w", err)
	}
	for r.json = json.NewDecoder(r.ahead); r.json.More(); {
		if err := r.object(r.kind); err != nil {
			return err
		}
	}
	return nil
}

// discard removes the temporary file.
func (r *rocprofiler) discard() {
	if r.ahead != nil {
		_ = event.CloseTemp(r.ahead)
		r.ahead = nil
	}
}
