// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/xpdata"
)

// writer adds attributes to one span after the other. pdata compares the name of each one that is put with all that
// are there, in memory that has left the caches while the span waited. Where none of the new names can be there, the
// map is made anew instead: it has to grow anyway, so old values move and new ones are appended.
type writer struct {
	builder xpdata.MapBuilder
	to      pcommon.Map
	anew    bool
}

// open begins with a map that gains about room attributes. anew makes it anew: none of the names that will be written
// may be there, and none may be written twice. Else a name that is there gets the new value.
func (w *writer) open(to pcommon.Map, room int, anew bool) {
	w.to, w.anew = to, anew
	if !anew {
		to.EnsureCapacity(to.Len() + room)
		return
	}
	w.builder.EnsureCapacity(to.Len() + room)
	for k, v := range to.All() {
		v.MoveTo(w.builder.AppendEmpty(k))
	}
}

// close ends the work on the map, which nobody reads before.
func (w *writer) close() {
	if w.anew {
		w.builder.UnsafeIntoMap(w.to)
	}
	w.to = pcommon.Map{}
}

func (w *writer) double(name string, v float64) { w.value(name).SetDouble(v) }
func (w *writer) int(name string, v int64)      { w.value(name).SetInt(v) }
func (w *writer) str(name, v string)            { w.value(name).SetStr(v) }

// slice is to be filled before the next attribute is written.
func (w *writer) slice(name string) pcommon.Slice { return w.value(name).SetEmptySlice() }

func (w *writer) value(name string) pcommon.Value {
	if w.anew {
		return w.builder.AppendEmpty(name)
	}
	v, _ := w.to.GetOrPutEmpty(name)
	return v
}
