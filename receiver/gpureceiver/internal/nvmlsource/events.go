// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// maxEventsPerRead bounds one read; a storm is read on with the next.
const maxEventsPerRead = 256

// watchEvents registers the boards for XIDs. Where that is not possible there are none.
func (s *Source) watchEvents() {
	if s.events != nil {
		_ = s.events.Free()
		s.events = nil
	}
	set, ret := s.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	registered := false
	for _, u := range s.units {
		if !u.mig && u.handle.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			registered = true
		}
	}
	if !registered {
		_ = set.Free()
		return
	}
	s.events = set
}

// readEvents takes what is queued, without waiting. NVML events have no time of their own; theirs is that of the read.
func (s *Source) readEvents(b *gpudata.Batch) {
	if s.events == nil {
		return
	}
	now := time.Now().UnixNano()
	for range maxEventsPerRead {
		e, ret := s.events.Wait(0)
		if ret != nvml.SUCCESS {
			break // a timeout: nothing is queued
		}
		if e.EventType != nvml.EventTypeXidCriticalError || e.Device == nil {
			continue
		}
		uuid, ret := e.Device.GetUUID()
		if ret != nvml.SUCCESS {
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
