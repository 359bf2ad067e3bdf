// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

const (
	maxName = spanfacts.MaxText // bytes of a span's name
	maxText = 2048              // bytes of an attribute: Tempo's default limit
)

func putText(m pcommon.Map, k attribute.Key, v string) {
	if v != "" {
		m.PutStr(string(k), spanfacts.ValidText(v, maxText))
	}
}

func putSeconds[T ~int64](m pcommon.Map, k attribute.Key, ns T) { putNumber(m, k, float64(ns)/1e9) }

func putNumber(m pcommon.Map, k attribute.Key, v float64) { m.PutDouble(string(k), v) }

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
		l.AppendEmpty().SetStr(spanfacts.ValidText(x, maxName))
	}
}
