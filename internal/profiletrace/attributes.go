// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"fmt"
	"hash/fnv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

const (
	maxName = 256  // bytes of a span's name
	maxText = 2048 // bytes of an attribute: Tempo's default limit
)

// validText truncates a string to n bytes and makes it valid UTF-8, which OTLP requires.
func validText(s string, n int) string {
	return strings.ToValidUTF8(spanfacts.Truncate(s, n), "\uFFFD")
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// distinct is like validText, but truncates different names to different texts, because truncated names end in a hash
// of the whole.
func distinct(s string, n int) string {
	if len(s) <= n {
		return validText(s, n)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return validText(s, n-len("…12345678")) + fmt.Sprintf("…%08x", h.Sum32())
}

func putText(m pcommon.Map, k attribute.Key, v string) {
	if v != "" {
		m.PutStr(string(k), validText(v, maxText))
	}
}

func putSeconds(m pcommon.Map, k attribute.Key, ns int64) { m.PutDouble(string(k), seconds(ns)) }

func putInt(m pcommon.Map, k attribute.Key, v int64) { m.PutInt(string(k), v) }

func putInts(m pcommon.Map, k attribute.Key, v [3]int64) {
	l := m.PutEmptySlice(string(k))
	l.EnsureCapacity(3)
	for _, x := range v {
		l.AppendEmpty().SetInt(x)
	}
}

func putTexts(m pcommon.Map, k attribute.Key, v []string) {
	if len(v) == 0 {
		return
	}
	l := m.PutEmptySlice(string(k))
	for _, x := range v {
		l.AppendEmpty().SetStr(validText(x, maxName))
	}
}
