// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"math"

	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
	"github.com/otelgpu/otelgpu/semconv"
)

// noThread and noDevice are of sums that another reader made: they belong to no step, and to no device.
const (
	noThread = math.MinInt64
	noDevice = math.MinInt64
)

// ownSection reports whether an annotation on the device is a section of gpuspan/chrometrace. PyTorch's repeat
// annotations of the host and are passed over; a section repeats nothing, so leaving it out is worth a word.
func ownSection(j *chromejson.Event) (own bool) {
	if string(j.Cat) != "gpu_user_annotation" {
		return false
	}
	chromejson.Fields(j.Args, func(k, _ []byte) bool {
		own = string(k) == string(semconv.GPUOperationTypeKey)
		return !own
	})
	return own
}

// allocations takes the sums of allocations that gpuspan/chrometrace wrote on a step, or on the window of a device: its
// files hold the spans of a trace that was read before, and no allocations.
func (c *collect) allocations(e *gputrace.Event, args []byte) error {
	var delta, highest, device int64
	var has, hasHighest, hasDevice bool
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case string(semconv.GPUMemoryAllocatedDeltaKey):
			has = setInt(&delta, v)
		case string(semconv.GPUMemoryAllocatedMaxKey):
			hasHighest = setInt(&highest, v)
		case string(semconv.GPUDeviceOrdinalKey), "device":
			hasDevice = setInt(&device, v)
		}
		return true
	})
	if !has {
		return nil
	}
	m := gputrace.Event{Kind: gputrace.KindMemory, Start: e.Start, Process: e.Process, Thread: e.Thread}
	if e.Kind != gputrace.KindStep {
		if !hasDevice {
			return nil
		}
		m.Process, m.Thread = noThread, noThread
	} else {
		device = noDevice // the window says what each device had
	}
	m.Detail.MemoryDevice, m.Detail.Bytes, m.Detail.HasBytes = device, delta, true
	if err := c.add(&m); err != nil || !hasHighest {
		return err
	}
	m.Detail.Bytes, m.Detail.MemoryUsage, m.Detail.HasMemoryUsage = 0, highest, true
	return c.add(&m)
}
