// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func gz(t testing.TB, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

const oneEvent = `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1000,"dur":5,"args":{"device":0,"stream":7,"correlation":3}}`

func TestFilesThatAreNoTracesAreRefusedByName(t *testing.T) {
	whole := gz(t, `{"traceEvents":[`+oneEvent+`]}`)
	for name, c := range map[string]struct {
		text string
		is   error
		says string
	}{
		"empty.json":          {"", ErrNotTrace, "it is empty"},
		"space.json":          {" \n", ErrNotTrace, "it is empty"},
		"text.json":           {"hello", ErrNotTrace, "it begins with 'h'"},
		"number.json":         {"17", ErrNotTrace, "it begins with '1'"},
		"executiontrace.json": {`{"schema":"1.0.1","nodes":[{"id":2}]}`, ErrNotTrace, "it has no traceEvents"},
		"emptyobject.json":    {"{}", ErrNotTrace, "it has no traceEvents"},
		"cut.json":            {`{"traceEvents":[` + oneEvent + `,{"ph":"X","na`, ErrTruncated, "after 1 events"},
		"cutafter.json":       {`{"traceEvents":[` + oneEvent, ErrTruncated, "after 1 events"},
		"cutclose.json":       {`{"traceEvents":[` + oneEvent + "]", ErrTruncated, "the file ends"},
		"nocolon.json":        {`{"traceEvents":[{"ph" "X"}]}`, ErrSyntax, "a colon is missing"},
		"nocomma.json":        {`{"traceEvents":[` + oneEvent + oneEvent + `]}`, ErrSyntax, "a comma is missing between events"},
		"brackets.json":       {`{"traceEvents":[{"ph":"X","args":{"a":[1,2}}]}`, ErrSyntax, "brackets do not match"},
		"notobjects.json":     {`{"traceEvents":[1,2]}`, ErrSyntax, "an event is not an object"},
		"after.json":          {`{"traceEvents":[]} x`, ErrSyntax, "after the end of the trace"},
		"cut.json.gz":         {whole[:len(whole)/2], ErrTruncated, "the compressed data ends early"},
		"notail.json.gz":      {whole[:len(whole)-4], ErrTruncated, "the compressed data ends early"},
		"checksum.json.gz":    {whole[:len(whole)-5] + "\x00" + whole[len(whole)-4:], gzip.ErrChecksum, "broken gzip data"},
		"header.json.gz":      {"\x1f\x8b\x07" + strings.Repeat("\x00", 40), gzip.ErrHeader, "broken gzip data"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error {
				t.Error("something of a refused file was emitted")
				return nil
			})
			require.Error(t, err)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			assert.ErrorContains(t, err, path)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestMissingFilesAndFoldersAreRefusedByName(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadFile(t.Context(), filepath.Join(dir, "none.json"), Options{}, nil)
	assert.ErrorContains(t, err, "none.json")
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadFile(t.Context(), dir, Options{}, nil)
	assert.ErrorContains(t, err, "it is a directory")
}

func TestRecordedFilesThatAreNoTracesAreRefused(t *testing.T) {
	for path, ref := range references(t, "kineto") {
		if ref.Kineto == nil || *ref.Kineto {
			continue
		}
		_, err := ReadFile(t.Context(), path, Options{}, nil)
		require.ErrorIs(t, err, ErrNotTrace)
		assert.ErrorContains(t, err, path)
	}
}

func TestEmptyTraceHasNoSpans(t *testing.T) {
	st, err := Read(t.Context(), bytes.NewReader([]byte(`{"traceEvents":[]}`)), Options{}, nil)
	require.NoError(t, err)
	assert.Zero(t, st.Spans)
}

func TestErrorOfTheConsumerIsReturned(t *testing.T) {
	full := errors.New("full")
	_, err := Read(t.Context(), bytes.NewReader([]byte("["+oneEvent+"]")), Options{}, func(context.Context, ptrace.Traces) error { return full })
	assert.ErrorIs(t, err, full)
}

func TestReadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	_, err := Read(ctx, bytes.NewReader([]byte("["+oneEvent+"]")), Options{}, nil)
	assert.ErrorIs(t, err, gone)
}
