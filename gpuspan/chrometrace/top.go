// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/json"
	"maps"
	"slices"
)

// top is what PyTorch's files say once for all events, as far as it is one: models of devices by ordinal, and job,
// rank, host and service when all processes agree. The origins are of this project.
type top struct {
	Devices     []deviceModel     `json:"deviceProperties,omitempty"`
	Distributed *place            `json:"distributedInfo,omitempty"`
	Service     string            `json:"service.name,omitempty"`
	Job         string            `json:"gpu.job.id,omitempty"`
	Host        string            `json:"host_name,omitempty"`
	Origins     []json.RawMessage `json:"otelgpuOrigins,omitempty"`
}

type deviceModel struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

type place struct {
	Rank      int64  `json:"rank"`
	LocalRank *int64 `json:"local_rank,omitempty"`
	WorldSize int64  `json:"world_size,omitempty"`
}

// top writes it behind the events, and ends the file.
func (w *Writer) top() error {
	t := top{
		Service: common(w, func(p Process) string { return p.Service }),
		Job:     common(w, func(p Process) string { return p.Job }),
		Host:    common(w, func(p Process) string { return p.Host }), Origins: w.origins.list,
	}
	for _, ordinal := range slices.Sorted(maps.Keys(w.models)) {
		if m := w.models[ordinal]; m != "" {
			t.Devices = append(t.Devices, deviceModel{ordinal, m})
		}
	}
	if p := common(w, func(p Process) Process {
		if !p.HasRank {
			return Process{}
		}
		return Process{
			Rank: p.Rank, HasRank: true, LocalRank: p.LocalRank, HasLocalRank: p.HasLocalRank, WorldSize: max(p.WorldSize, 0),
		}
	}); p.HasRank {
		t.Distributed = &place{Rank: p.Rank, WorldSize: p.WorldSize}
		if p.HasLocalRank {
			t.Distributed.LocalRank = &p.LocalRank
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if len(b) > len("{}") {
		w.buf = append(append(w.buf, ",\n"...), b[1:]...)
	} else {
		w.buf = append(w.buf, '}')
	}
	w.buf = append(w.buf, '\n')
	return nil
}

// common is the value that all processes have; the zero value where there is none.
func common[T comparable](w *Writer, of func(Process) T) (value T) {
	first := true
	for p := range w.procs {
		if v := of(p); first {
			value, first = v, false
		} else if v != value {
			var none T
			return none
		}
	}
	return value
}
