// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// readProcesses reads which processes run on the devices, as of the newest reading of each. The
// engine stores the processes of one reading under one time, and moves each on by 1 µs until the
// time is free (timeseries_insert in DCGM's timeseries.c): a reading is a run of consecutive
// microseconds. Without a process it stores nothing.
func (s *session) readProcesses(b *gpudata.Batch, w *watch) error {
	type running struct{ pid, bytes, ts int64 }
	byDevice := make([][]running, len(s.devices))
	var next int64
	err := again(func() (err error) {
		clear(byDevice)
		next, err = s.api.valuesSince(w.group, w.fields, w.mark, func(v *rawValue) {
			devices := s.byPart[v.entity]
			if v.status != statusOK || v.typ != typeBinary || v.i == 0 || len(devices) == 0 {
				return
			}
			bytes := v.more
			if bytes >= blankInt {
				bytes = gpudata.BytesUnknown
			}
			byDevice[devices[0]] = append(byDevice[devices[0]], running{v.i, bytes, v.ts})
		})
		return err
	})
	if err != nil {
		return err
	}
	w.mark = next
	for i, list := range byDevice {
		slices.SortStableFunc(list, func(a, b running) int { return cmp.Compare(a.ts, b.ts) })
		first := max(len(list)-1, 0)
		for first > 0 && list[first].ts-list[first-1].ts <= 1 {
			first--
		}
		for _, p := range list[first:] {
			b.Processes = append(b.Processes, gpudata.ProcessMemory{Device: s.devices[i].ID, PID: p.pid, Bytes: p.bytes})
			b.Listed = max(b.Listed, list[first].ts*1000)
		}
	}
	if b.Listed == 0 { // there is no process
		b.Listed = s.now().UnixNano()
	}
	return nil
}
