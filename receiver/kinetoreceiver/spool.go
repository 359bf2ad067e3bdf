// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool keeps pieces of data in order: in memory up to a limit, beyond it in a temporary file.
type spool struct {
	dir    string
	limit  int
	pieces [][]byte
	size   int
	file   *os.File
	at     int64 // length of the file
}

func newSpool(dir string, limit int) *spool {
	return &spool{dir: dir, limit: limit}
}

func (s *spool) put(b []byte) error {
	s.pieces, s.size = append(s.pieces, b), s.size+len(b)
	if s.size <= s.limit {
		return nil
	}
	return s.spill()
}

func (s *spool) spill() error {
	if s.file == nil {
		f, err := os.CreateTemp(s.dir, "otelgpu-kineto-*.spill")
		if err != nil {
			return fmt.Errorf("cannot create temporary file for spans: %w", err)
		}
		s.file = f
		_ = os.Remove(f.Name()) // works where open files may be removed; close removes it elsewhere
	}
	for _, p := range s.pieces {
		head := binary.LittleEndian.AppendUint32(make([]byte, 0, 4), uint32(len(p)))
		for _, b := range [][]byte{head, p} {
			n, err := s.file.Write(b)
			s.at += int64(n)
			if err != nil {
				return fmt.Errorf("cannot write temporary file for spans: %w", err)
			}
		}
	}
	clear(s.pieces)
	s.pieces, s.size = s.pieces[:0], 0
	return nil
}

// each calls f for every piece, in order.
func (s *spool) each(f func([]byte) error) error {
	if s.file != nil {
		from := io.NewSectionReader(s.file, 0, s.at)
		var head [4]byte
		for {
			if _, err := io.ReadFull(from, head[:]); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return fmt.Errorf("cannot read temporary file for spans: %w", err)
			}
			b := make([]byte, binary.LittleEndian.Uint32(head[:]))
			if _, err := io.ReadFull(from, b); err != nil {
				return fmt.Errorf("cannot read temporary file for spans: %w", err)
			}
			if err := f(b); err != nil {
				return err
			}
		}
	}
	for _, b := range s.pieces {
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

// close removes the file.
func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}
