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
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// maxEventsPerRead bounds one read; a storm is read on with the next.
const maxEventsPerRead = 256

// watchEvents registers the devices for XIDs and, since driver R615, for GPU Operational Events. If
// that is not possible there are none.
func (s *source) watchEvents() {
	s.unwatch()
	set, ret := s.number("nvmlEventSetCreate")
	if ret != nvml.Success {
		return
	}
	operational := s.lib.Has("nvmlEventSetRegisterGpuOperationalEvents_v1") && s.lib.Has("nvmlEventSetWait_v3")
	registered := false
	s.faults.operational = false
	for i, u := range s.units {
		if u.mig() {
			continue
		}
		registered = s.lib.Call("nvmlDeviceRegisterEvents", u.handle, nvml.EventTypeXidCriticalError,
			nvml.Handle(set)) == nvml.Success || registered
		if operational {
			c := nvml.OperationalEventConfig{MinLogLevel: nvml.LogLevelWarning}
			copy(c.UUID[:len(c.UUID)-1], s.devices[i].ID)
			s.faults.operational = s.lib.Call("nvmlEventSetRegisterGpuOperationalEvents_v1", nvml.Handle(set), &c) ==
				nvml.Success || s.faults.operational
		}
	}
	if s.events = nvml.Handle(set); !registered && !s.faults.operational {
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
	if s.faults.operational {
		read = s.readOperational
	}
	for range maxEventsPerRead {
		if !read(now, b) {
			break // a timeout: nothing is queued
		}
	}
	for _, e := range s.faults.ready(now) {
		i := slices.IndexFunc(s.devices, func(d devicesamples.Device) bool { return d.ID == e.uuid })
		if i < 0 {
			b.Dropped[gpudata.DropUnknownEntity]++
			continue
		}
		if e.Kind == devicesamples.EventXID {
			s.xids[e.uuid]++
		}
		b.Events = append(b.Events, gpudata.Event{Device: uint16(i), Event: e.Event})
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
			s.faults.add(incident{uuid: uuid, at: now, read: now, xid: int64(e.EventData), bit: true})
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
	x := incident{uuid: nvml.Text(e.UUID[:]), at: now, read: now}
	if t := int64(e.TimestampUsec) * 1000; t > now-int64(oldestEvent) && t <= now {
		x.at = t
	}
	switch e.DataType {
	case nvml.EventDataTypeNvmlEvent:
		if e.EventType != nvml.EventTypeXidCriticalError {
			return true
		}
		x.xid, x.bit = int64(e.EventData), true
	default: // a later format has the same fields
		if e.Attributes&nvml.EventAttributeOverflow != 0 {
			b.Dropped[gpudata.DropOverrun]++
		}
		x.primary = e.Attributes&nvml.EventAttributePrimary != 0
		if e.GroupSize > 1 {
			x.group = e.GroupCursor
		}
		x.fault = devicesamples.Fault{
			Module: nvml.Text(e.SourceModule[:]), Category: e.CategoryID, Code: e.ModuleEventCode, Severity: e.Severity,
		}
		x.xid = s.legacyXID()
	}
	s.faults.add(x)
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

// incident is what one or several notifications report.
type incident struct {
	uuid    string
	at      int64 // when it happened, if that is known
	read    int64
	xid     int64 // 0: none
	bit     bool  // the XID came as an event bit
	fault   devicesamples.Fault
	group   uint64 // 0: it is alone
	primary bool   // the main event of its group
	sent    bool
}

// faults makes one event of the notifications of an incident: the driver may report it as an XID, as
// an operational event with the XID in a context, and as a group of operational events.
type faults struct {
	operational bool // operational events are delivered
	waiting     []incident
}

const (
	// pairing is the time between two notifications of one incident at most, in ns, and so how long
	// one waits for the other.
	pairing = int64(time.Second)
	// maxIncidents bounds what waits; more are sent at once.
	maxIncidents = 1024
)

func (f *faults) add(x incident) {
	for i := range f.waiting {
		if w := &f.waiting[i]; w.uuid == x.uuid && w.joins(&x) {
			w.merge(&x)
			return
		}
	}
	f.waiting = append(f.waiting, x)
}

// joins reports whether two notifications are of one incident.
func (w *incident) joins(x *incident) bool {
	if w.group != 0 && w.group == x.group {
		return true
	}
	return w.xid != 0 && w.xid == x.xid && w.bit != x.bit && x.read-w.read <= pairing &&
		!(w.bit && w.fault != devicesamples.Fault{})
}

// merge adds what a notification says; what was sent does not change.
func (w *incident) merge(x *incident) {
	w.xid = max(w.xid, x.xid)
	w.bit = w.bit || x.bit
	if none := (devicesamples.Fault{}); x.fault != none && (w.fault == none || x.primary) {
		w.fault = x.fault
	}
	w.group = max(w.group, x.group)
	w.at = min(w.at, x.at)
}

// ready returns the events that are complete, by device UUID, and forgets them when nothing more
// can belong to them.
func (f *faults) ready(now int64) (events []readyEvent) {
	for i := range f.waiting {
		x := &f.waiting[i]
		if x.sent || f.operational && now-x.read < pairing && len(f.waiting) < maxIncidents {
			continue
		}
		x.sent = true
		kind, code := devicesamples.EventFault, int64(x.fault.Code)
		if x.xid != 0 {
			kind, code = devicesamples.EventXID, x.xid
		}
		events = append(events, readyEvent{x.uuid, devicesamples.Event{
			Time: x.at, Kind: kind, Code: code, Count: 1, Fault: x.fault,
		}})
	}
	f.waiting = slices.DeleteFunc(f.waiting, func(x incident) bool {
		return x.sent && (!f.operational || now-x.read >= 3*pairing || len(f.waiting) >= maxIncidents)
	})
	return events
}

// readyEvent is an event of a device.
type readyEvent struct {
	uuid string
	devicesamples.Event
}
