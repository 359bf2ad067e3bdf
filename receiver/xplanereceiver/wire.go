// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Errors of [ReadFile] that callers can distinguish by errors.Is.
var (
	ErrNotXSpace = errors.New("not an XPlane profile")
	ErrTruncated = errors.New("the file ends early")
	ErrBroken    = errors.New("broken protobuf")
)

// wire reads nested messages from a stream, which may be far larger than memory. A message is given
// by the position of its end; what is small is taken as a whole and decoded by protowire.
type wire struct {
	r   *bufio.Reader
	at  int64
	buf []byte
}

// whole is the end of the outermost message.
const whole = math.MaxInt64

// ReadByte implements io.ByteReader.
func (w *wire) ReadByte() (byte, error) {
	c, err := w.r.ReadByte()
	if err == nil {
		w.at++
	}
	return c, err
}

// field returns the number and type of the next field of the message that ends at end; 0 after the
// last one.
func (w *wire) field(end int64) (protowire.Number, protowire.Type, error) {
	if w.at == end {
		return 0, 0, nil
	}
	if _, err := w.r.Peek(1); end == whole && errors.Is(err, io.EOF) {
		return 0, 0, nil
	}
	tag, err := w.varint(end)
	if err != nil {
		return 0, 0, err
	}
	n, t := protowire.DecodeTag(tag)
	if n < protowire.MinValidNumber {
		return 0, 0, w.broken("no field has the tag %d", tag)
	}
	return n, t, nil
}

func (w *wire) varint(end int64) (uint64, error) {
	v, err := binary.ReadUvarint(w)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, w.truncated()
	case err != nil:
		return 0, w.broken("%v", err)
	case w.at > end:
		return 0, w.broken("a number is longer than its message")
	}
	return v, nil
}

// inner returns the end of the message or text that follows, within the message that ends at end.
func (w *wire) inner(t protowire.Type, end int64) (int64, error) {
	if t != protowire.BytesType {
		return 0, w.broken("a field has the type %d instead of a message or text", t)
	}
	n, err := w.varint(end)
	if err != nil {
		return 0, err
	}
	if n > uint64(end-w.at) {
		return 0, w.broken("a field of %d bytes is in a message of which %d are left", n, end-w.at)
	}
	return w.at + int64(n), nil
}

// eachField receives the number and type of a field of a message that ends at end. It reads the
// value, or returns false, and the value is skipped.
type eachField func(num protowire.Number, t protowire.Type, end int64) (used bool, err error)

// fields calls f for the fields of the message that ends at end.
func (w *wire) fields(end int64, f eachField) error {
	for {
		num, t, err := w.field(end)
		if err != nil || num == 0 {
			return err
		}
		used, err := f(num, t, end)
		if err == nil && !used {
			err = w.skip(t, end)
		}
		if err != nil {
			return err
		}
	}
}

// message calls f for the fields of the message that is the value of a field.
func (w *wire) message(t protowire.Type, end int64, f eachField) error {
	stop, err := w.inner(t, end)
	if err != nil {
		return err
	}
	return w.fields(stop, f)
}

// value returns the bytes of a text or message, which are valid until the next call; nil if they
// are more than maxText, and skipped.
func (w *wire) value(t protowire.Type, end int64) ([]byte, error) {
	stop, err := w.inner(t, end)
	if err != nil {
		return nil, err
	}
	n := stop - w.at
	if n > maxText {
		return nil, w.discard(n)
	}
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, n, 2*n)
	}
	b := w.buf[:n]
	read, err := io.ReadFull(w.r, b)
	w.at += int64(read)
	return b, w.ended(err)
}

// skip passes over a field's value.
func (w *wire) skip(t protowire.Type, end int64) error {
	switch t {
	case protowire.VarintType:
		_, err := w.varint(end)
		return err
	case protowire.Fixed32Type, protowire.Fixed64Type:
		n := int64(4)
		if t == protowire.Fixed64Type {
			n = 8
		}
		if n > end-w.at {
			return w.broken("a number is longer than its message")
		}
		return w.discard(n)
	}
	stop, err := w.inner(t, end)
	if err != nil {
		return err
	}
	return w.discard(stop - w.at)
}

func (w *wire) discard(n int64) error {
	for n > 0 {
		done, err := w.r.Discard(int(min(n, 1<<30)))
		w.at += int64(done)
		if n -= int64(done); err != nil {
			return w.ended(err)
		}
	}
	return nil
}

func (w *wire) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return w.truncated()
	}
	return err
}

func (w *wire) truncated() error { return fmt.Errorf("%w, at byte %d", ErrTruncated, w.at) }

func (w *wire) broken(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: "+format, append([]any{ErrBroken, w.at}, args...)...)
}

// each calls f for the fields of a message that is in memory: with n for numbers, with b for
// messages, texts and doubles.
func each(b []byte, f func(num protowire.Number, n uint64, b []byte)) error {
	for len(b) > 0 {
		num, t, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrBroken, protowire.ParseError(n))
		}
		b = b[n:]
		var v uint64
		var text []byte
		switch t {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, t, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrBroken, protowire.ParseError(n))
		}
		b = b[n:]
		f(num, v, text)
	}
	return nil
}
