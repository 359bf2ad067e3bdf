// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package printable_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/printable"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"void gemm<float>(µ, 日本)": "void gemm<float>(µ, 日本)",
		"a\x1b]0;title\x07b":      `a\x1b]0;title\ab`,
		"over\rwritten":           `over\rwritten`,
		"two\nlines":              `two\nlines`,
		"c1\u009b2J":              `c1\u009b2J`,
		"bidi\u202egnp.exe":       `bidi\u202egnp.exe`,
		"para\u2029graph":         `para\u2029graph`,
		"no\xffutf8":              `no\xffutf8`,
		"replacement \ufffd":      "replacement \ufffd",
	} {
		assert.Equal(t, want, printable.Line(in))
	}
	assert.Equal(t, "a\n\tb\\x1b", printable.Text("a\n\tb\x1b"))
}

func TestALongTextTakesSeveralLines(t *testing.T) {
	const text = "loader, GPU 0: the host waited for µdata"
	assert.Equal(t, "    "+text, printable.Wrapped(text, 0, "    ", "      "))
	assert.Equal(t, "  loader, GPU 0:\n    the host\n    waited for\n    µdata", printable.Wrapped(text, 17, "  ", "    "))
	assert.Equal(t, "  loader, GPU\n    0: the host\n    waited for\n    µdata", printable.Wrapped(text, 16, "  ", "    "))
	assert.Equal(t, "loader,\nGPU 0:\nthe host\nwaited\nfor\nµdata", printable.Wrapped(text, 9, "", ""))
	assert.Equal(t, "- aaaaaaaaaa\n  b", printable.Wrapped("aaaaaaaaaa b", 5, "- ", "  "))
}
