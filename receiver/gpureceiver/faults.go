// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"math"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/incidents"
)

// operationalEvents are what the driver reports of faults while DCGM is the source, which reports
// XIDs only.
type operationalEvents struct {
	mu    sync.Mutex
	state operationalState
	queue []incidents.Incident
	lost  int64 // for which there was no room

	// Of the engine's goroutine only.
	pairs incidents.Pairs
}

// operationalState is whether the driver reports operational events.
type operationalState uint8

const (
	operationalUnknown operationalState = iota
	operationalAbsent
	operationalPresent
)

// maxFaults bounds the events that wait for the engine.
const maxFaults = 1024

// put adds what was read of a physical GPU.
func (o *operationalEvents) put(u *gpudata.ProcessUse) {
	o.set(u.Operational)
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now().UnixNano()
	for _, e := range u.Faults {
		x := incidents.Incident{Device: u.Device, Time: e.Time, Read: now, Count: e.Count, Fault: e.Fault}
		if e.Kind == devicesamples.EventXID {
			x.XID = e.Code
		}
		if len(o.queue) >= maxFaults {
			o.lost++
			continue
		}
		o.queue = append(o.queue, x)
	}
}

func (o *operationalEvents) set(present bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state = operationalAbsent; present {
		o.state = operationalPresent
	}
}

// absent reports whether it is known that the driver does not report operational events.
func (o *operationalEvents) absent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state == operationalAbsent
}

// pair takes the XIDs of DCGM out of a batch, and puts in what is complete: one event for each
// fault.
func (r *gpuReceiver) pair(source string, devices []devicesamples.Device, b *gpudata.Batch) {
	o := &r.operational
	o.mu.Lock()
	queue, lost := o.queue, o.lost
	o.queue, o.lost, o.pairs.Operational = nil, 0, o.state == operationalPresent
	o.mu.Unlock()
	if source != sourceDCGM {
		return // it reports operational events itself, or has none
	}
	b.Dropped[gpudata.DropOverrun] += lost
	for _, x := range queue {
		o.pairs.Add(x)
	}
	now := time.Now().UnixNano()
	kept := b.Events[:0]
	for _, e := range b.Events {
		if e.Kind != devicesamples.EventXID || int(e.Device) >= len(devices) {
			kept = append(kept, e)
			continue
		}
		o.pairs.Add(incidents.Incident{
			Device: devices[e.Device].ID, Time: e.Time, Read: now, XID: e.Code, Plain: true, Count: e.Count,
		})
	}
	b.Events = kept
	r.complete(now, devices, b)
}

// complete appends the events of incidents that are complete.
func (r *gpuReceiver) complete(now int64, devices []devicesamples.Device, b *gpudata.Batch) {
	for _, x := range r.operational.pairs.Ready(now) {
		known := false
		for i := range devices {
			if devices[i].ID == x.Device {
				known = true
				b.Events = append(b.Events, gpudata.Event{Device: uint16(i), Event: x.Event()})
			}
		}
		if !known {
			b.Dropped[gpudata.DropUnknownEntity]++
		}
	}
}

// flushFaults emits what still waits when the engine has ended.
func (r *gpuReceiver) flushFaults() {
	var b gpudata.Batch
	r.complete(math.MaxInt64, r.known, &b)
	if len(b.Events) > 0 {
		r.take(&b)
	}
}
