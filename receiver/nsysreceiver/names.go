// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/sqlitefile"
)

var (
	// PyTorch's emit_nvtx writes "aten::add, seq = 5, op_id = 7, sizes = [[2, 3]]".
	torchOperator = regexp.MustCompile(`^(.+?), (?:seq = -?\d+|op_id = \d+)(?:, .*)?$`)
	torchSizes    = regexp.MustCompile(`, sizes = (\[.*?\])(?:, \w+ = .*)?$`)
	stepName      = regexp.MustCompile(`^(?:ProfilerStep#|(?i:train[ _-]?)?(?i:step|iteration|iter)[ _#:=-]*)(\d+)$`)
)

// rangeOf classifies an NVTX range: a numbered step, an operator of PyTorch, or an annotation.
func rangeOf(e *event.Event, text string) (name string) {
	e.Kind = event.KindAnnotation
	if m := stepName.FindStringSubmatch(text); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			e.Kind, e.Detail.Step, e.Detail.HasStep = event.KindStep, n, true
			return text
		}
	}
	if m := torchOperator.FindStringSubmatch(text); m != nil {
		e.Kind = event.KindOperator
		if s := torchSizes.FindStringSubmatch(text); s != nil {
			e.Detail.Shapes = s[1]
		}
		return m[1]
	}
	if strings.HasPrefix(text, "aten::") {
		e.Kind = event.KindOperator
		return text
	}
	rest, parent := vocabulary.FindTraceParent(text)
	if parent != "" && emit.ParseTraceParent(parent) == nil {
		e.Detail.TraceParent = parent
		return rest
	}
	return text
}

// migrations are the kinds of copies that are page migrations of unified memory, as the exporter
// numbers them (ENUM_CUDA_MEMOPER_TYPE).
var migrations = map[int64]string{11: "HtoD", 12: "DtoH", 13: "PtoP"}

// userPrefetch is the cause of a migration that the program requested
// (ENUM_CUDA_UNIF_MEM_MIGRATION): an ordinary copy.
const userPrefetch = 1

// maxStrings bounds the memory of texts, in bytes. NVTX ranges with numbers in their texts create
// any number of them; kernels and calls have few, which repeat.
const maxStrings = 16 << 20

// texts looks up StringIds by id, while another table is read.
type texts struct {
	table  *sqlitefile.Table // nil where the file has no such table
	column string            // empty: value
	held   map[int64]string
	bytes  int
}

// text returns the text with an id, empty if missing.
func (t *texts) text(id int64) (string, error) {
	if s, ok := t.held[id]; ok || t.table == nil {
		return s, nil
	}
	v, err := t.table.Find("id", id, cmp.Or(t.column, "value"))
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
