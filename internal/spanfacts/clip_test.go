// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestClipBoundsATextAtARune(t *testing.T) {
	assert.Equal(t, strings.Repeat("a", 256), Clip(strings.Repeat("a", 256)))
	assert.Equal(t, strings.Repeat("a", 256)+"…", Clip(strings.Repeat("a", 257)))
	assert.Equal(t, strings.Repeat("a", 255)+"…", Clip(strings.Repeat("a", 255)+"é"))
	assert.Equal(t, "\uFFFD…", Clip(strings.Repeat("\x80", 300)), "one replacement for a run")
	assert.Equal(t, "a\uFFFDb", Clip("a\xff\xfeb"))
	assert.Equal(t, strings.Repeat("a\uFFFD", 64)+"…", Clip(strings.Repeat("a\x80", 65)), "replacements count")
	assert.Equal(t, "é", Clip("é"))
}

func TestTraceStateIsWholeOrAbsent(t *testing.T) {
	s := ptrace.NewSpan()
	for state, want := range map[string]string{
		"ot=th:c":                "ot=th:c",
		strings.Repeat("a", 512): strings.Repeat("a", 512),
		strings.Repeat("a", 513): "",
		"vendor=\xff":            "",
	} {
		s.TraceState().FromRaw(state)
		assert.Equal(t, want, TraceState(s.TraceState()))
	}
}
