// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"maps"
	"slices"
)

// top writes what PyTorch's files say once for all events, as far as it is one: models of devices by ordinal, and job,
// rank, host and service when all processes agree.
func (w *Writer) top() {
	first := true
	for _, ordinal := range slices.Sorted(maps.Keys(w.models)) {
		if w.models[ordinal] == "" {
			continue
		}
		if first {
			w.buf = append(w.buf, ",\n\"deviceProperties\":["...)
		} else {
			w.buf = append(w.buf, ',')
		}
		first = false
		w.buf = append(w.buf, "{\"id\":"...)
		w.buf = appendValue(w.buf, Int(ordinal))
		w.str("name", w.models[ordinal])
		w.buf = append(w.buf, '}')
	}
	if !first {
		w.buf = append(w.buf, ']')
	}
	if p, ok := common(w, func(p Process) Process {
		if !p.HasRank {
			return Process{}
		}
		return Process{
			Rank: p.Rank, HasRank: true, LocalRank: p.LocalRank, HasLocalRank: p.HasLocalRank,
			WorldSize: p.WorldSize,
		}
	}); ok {
		w.buf = append(w.buf, ",\n\"distributedInfo\":{\"rank\":"...)
		w.buf = appendValue(w.buf, Int(p.Rank))
		if p.HasLocalRank {
			w.num("local_rank", p.LocalRank)
		}
		if p.WorldSize > 0 {
			w.num("world_size", p.WorldSize)
		}
		w.buf = append(w.buf, '}')
	}
	for _, f := range []struct {
		key  string
		from func(Process) string
	}{
		{"service.name", func(p Process) string { return p.Service }},
		{"gpu.job.id", func(p Process) string { return p.Job }},
		{"host_name", func(p Process) string { return p.Host }},
	} {
		if v, ok := common(w, f.from); ok {
			w.str(f.key, v)
		}
	}
}

// common is a value that all processes have.
func common[T comparable](w *Writer, of func(Process) T) (T, bool) {
	var value, none T
	first := true
	for p := range w.procs {
		if v := of(p); first {
			value, first = v, false
		} else if v != value {
			return none, false
		}
	}
	return value, value != none
}
