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
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.Success {
		return
	}
	registered := false
	for _, u := range s.units {
		if !u.mig && u.handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.Success {
			registered = true
		}
	}
	if !registered {
		_ = s.lib.EventSetFree(set)
		return
	}
	s.events = set
}

func (s *Source) unwatch() {
	if s.events != 0 {
		_ = s.lib.EventSetFree(s.events)
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
		e, ret := s.lib.EventSetWait(s.events, 0)
		if ret != nvml.Success {
			break // a timeout: nothing is queued
		}
		if e.EventType != nvml.EventTypeXidCriticalError || e.Device == nil {
			continue
		}
		uuid, ret := e.Device.GetUUID()
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
		if !u.mig {
			b.Add(i, gpudata.XIDs, now, s.xids[s.devices[i].ID])
		}
	}
}
