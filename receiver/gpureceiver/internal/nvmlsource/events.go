// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/incidents"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// maxEventsPerRead bounds one read; a storm is read on with the next.
const maxEventsPerRead = 256

// watchEvents registers the devices for XIDs, unless another source reports them, and since driver
// R615 for GPU Operational Events. If that is not possible there are none.
func (s *source) watchEvents(xids bool) {
	s.unwatch()
	set, ret := s.number("nvmlEventSetCreate")
	if ret != nvml.Success {
		return
	}
	operational := s.lib.Has("nvmlEventSetRegisterGpuOperationalEvents_v1") && s.lib.Has("nvmlEventSetWait_v3")
	registered := false
	s.faults.Operational = false
	for i, u := range s.units {
		if u.mig() {
			continue
		}
		registered = xids && s.lib.Call("nvmlDeviceRegisterEvents", u.handle, nvml.EventTypeXidCriticalError,
			nvml.Handle(set)) == nvml.Success || registered
		if operational {
			c := nvml.OperationalEventConfig{MinLogLevel: nvml.LogLevelWarning}
			copy(c.UUID[:len(c.UUID)-1], s.devices[i].ID)
			s.faults.Operational = s.lib.Call("nvmlEventSetRegisterGpuOperationalEvents_v1", nvml.Handle(set), &c) ==
				nvml.Success || s.faults.Operational
		}
	}
	if s.events = nvml.Handle(set); !registered && !s.faults.Operational {
		s.unwatch()
	}
}

func (s *source) unwatch() {
	if s.events != 0 {
		_ = s.lib.Call("nvmlEventSetFree", s.events)
		s.events = 0
	}
}

// readEvents reads queued events, without waiting. XID events of NVML have no time; they get the
// time of the read.
func (s *source) readEvents(b *gpudata.Batch) {
	if s.events == 0 {
		return
	}
	now := time.Now().UnixNano()
	read := s.readXID
	if s.faults.Operational {
		read = s.readOperational
	}
	for range maxEventsPerRead {
		if !read(now, b) {
			break // a timeout: nothing is queued
		}
	}
	for _, x := range s.faults.Ready(now) {
		i := slices.IndexFunc(s.devices, func(d devicesamples.Device) bool { return d.ID == x.Device })
		if i < 0 {
			b.Dropped[gpudata.DropUnknownEntity]++
			continue
		}
		if x.XID != 0 {
			s.xids[x.Device]++
		}
		b.Events = append(b.Events, gpudata.Event{Device: uint16(i), Event: x.Event()})
	}
	for i, u := range s.units {
		if !u.mig() {
			b.Add(i, gpuquantity.XIDs, now, s.xids[s.devices[i].ID])
		}
	}
}

// readXID reads one XID event; false if none is queued.
func (s *source) readXID(now int64, _ *gpudata.Batch) bool {
	var e nvml.EventData
	if s.lib.Call("nvmlEventSetWait_v2", s.events, &e, 0) != nvml.Success {
		return false
	}
	if e.EventType == nvml.EventTypeXidCriticalError && e.Device != 0 {
		if uuid, ret := s.text("nvmlDeviceGetUUID", e.Device); ret == nvml.Success {
			s.faults.Add(incidents.Incident{Device: uuid, Time: now, Read: now, XID: int64(e.EventData), Plain: true})
		}
	}
	return true
}

// readOperational reads one event of either format; false if none is queued.
func (s *source) readOperational(now int64, b *gpudata.Batch) bool {
	var e nvml.EventWait
	if s.lib.Call("nvmlEventSetWait_v3", s.events, &e) != nvml.Success {
		return false
	}
	x := incidents.Incident{Device: nvml.Text(e.UUID[:]), Time: now, Read: now}
	if t := int64(e.TimestampUsec) * 1000; t > now-int64(oldestEvent) && t <= now {
		x.Time = t
	}
	switch e.DataType {
	case nvml.EventDataTypeNvmlEvent:
		if e.EventType != nvml.EventTypeXidCriticalError {
			return true
		}
		x.XID, x.Plain = int64(e.EventData), true
	default: // a later format has the same fields
		if e.Attributes&nvml.EventAttributeOverflow != 0 {
			b.Dropped[gpudata.DropOverrun]++
		}
		x.Primary = e.Attributes&nvml.EventAttributePrimary != 0
		if e.GroupSize > 1 {
			x.Group = e.GroupCursor
		}
		x.Fault = devicesamples.Fault{
			Module: nvml.Text(e.SourceModule[:]), Category: e.CategoryID, Code: e.ModuleEventCode, Severity: e.Severity,
		}
		x.XID = s.legacyXID()
	}
	s.faults.Add(x)
	return true
}

// oldestEvent is the age from which the time of an event is not believed: only new ones are
// delivered.
const oldestEvent = time.Hour

// maxContexts bounds the contexts of one event that are read.
const maxContexts = 16

// legacyXID returns the XID of the last event, 0 if it has none.
func (s *source) legacyXID() int64 {
	var n nvml.EventContextCount
	if s.lib.Call("nvmlEventSetGetContextCount_v1", s.events, &n) != nvml.Success {
		return 0
	}
	for i := range min(n.Count, maxContexts) {
		x := nvml.EventContextLegacyXID{Index: i}
		// It succeeds only for contexts of that type.
		if s.lib.Call("nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1", s.events, &x) == nvml.Success {
			return int64(x.XIDCode)
		}
	}
	return 0
}
