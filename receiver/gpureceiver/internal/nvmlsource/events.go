// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// maxEventsPerRead bounds one read; a storm is read on with the next.
const maxEventsPerRead = 256

// watchEvents registers the boards for XIDs. Where that is not possible there are none.
func (s *Source) watchEvents() {
	s.unwatch()
	set, ret := s.number("nvmlEventSetCreate")
	if ret != nvml.Success {
		return
	}
	registered := false
	for _, u := range s.units {
		registered = !u.mig() && s.lib.Call("nvmlDeviceRegisterEvents", u.handle, nvml.EventTypeXidCriticalError,
			nvml.Handle(set)) == nvml.Success || registered
	}
	if s.events = nvml.Handle(set); !registered {
		s.unwatch()
	}
}

func (s *Source) unwatch() {
	if s.events != 0 {
		_ = s.lib.Call("nvmlEventSetFree", s.events)
		s.events = 0
	}
}

// readEvents takes what is queued, without waiting. NVML events have no time of their own; theirs is that of the read.
func (s *Source) readEvents(b *gpudata.Batch) {
	if s.events == 0 {
		return
	}
	now := time.Now().UnixNano()
	for range maxEventsPerRead {
		var e nvml.EventData
		if s.lib.Call("nvmlEventSetWait_v2", s.events, &e, 0) != nvml.Success {
			break // a timeout: nothing is queued
		}
		if e.EventType != nvml.EventTypeXidCriticalError || e.Device == 0 {
			continue
		}
		uuid, ret := s.text("nvmlDeviceGetUUID", e.Device)
		if ret != nvml.Success {
			continue
		}
		for i := range s.devices {
			if s.devices[i].ID == uuid {
				s.xids[uuid]++
				b.Events = append(b.Events, gpudata.Event{Device: uint16(i), Event: gpusamplesextension.Event{
					Time: now, Kind: gpusamplesextension.EventXID, Code: int64(e.EventData), Count: 1,
				}})
			}
		}
	}
	for i, u := range s.units {
		if !u.mig() {
			b.Add(i, gpudata.XIDs, now, s.xids[s.devices[i].ID])
		}
	}
}
