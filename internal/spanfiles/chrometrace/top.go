// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/json"
	"maps"
	"slices"
)

// top holds what PyTorch's files state once for all events: models of devices by ordinal; job,
// rank, host and service if all processes agree.
type top struct {
	Devices     []deviceModel `json:"deviceProperties,omitempty"`
	Distributed *distributed  `json:"distributedInfo,omitempty"`
	Service     string        `json:"service.name,omitempty"`
	Job         string        `json:"gpu.job.id,omitempty"`
	Host        string        `json:"host_name,omitempty"`
}

type deviceModel struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

type distributed struct {
	Rank      int64  `json:"rank"`
	LocalRank *int64 `json:"local_rank,omitempty"`
	WorldSize int64  `json:"world_size,omitempty"`
}

// top writes it after the events, and ends the file.
func (w *Writer) top() error {
	t := top{
		Service: common(w, func(p Process) string { return p.Service }),
		Job:     common(w, func(p Process) string { return p.Job }),
		Host:    common(w, func(p Process) string { return p.Host }),
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
		t.Distributed = &distributed{Rank: p.Rank, WorldSize: p.WorldSize}
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

// common returns the value that all processes have, the zero value if they differ.
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
