// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"fmt"

	"go.opentelemetry.io/collector/component"
)

// Writer is the face of the extension for components that have samples.
type Writer interface {
	// Register announces a device and returns what its samples are written through. A device has one writer: an ID
	// that another owner writes is refused; the same owner gets the same series with the new description, and its
	// earlier DeviceWriter ends. An empty ID and a device over `max_devices` are refused.
	Register(owner component.ID, d Device) (DeviceWriter, error)
}

// DeviceWriter takes the samples of one device. Its methods can be called from several goroutines.
type DeviceWriter interface {
	// Write appends samples, oldest first. A field whose newest point is not older than the sample is not stored
	// and counted (`duplicate` or `out_of_order`), so overlapping reads do no harm.
	Write(samples []Sample)
	// WriteEvents appends events in any order.
	WriteEvents(events []Event)
	// Close gives the device up. Its samples stay until they are too old. Later writes do nothing.
	Close()
}

// Reader is the face of the extension for the join.
type Reader interface {
	// Lease makes the caller the only join on these samples until release is called; the fair share of energy would
	// be dealt twice by two. The second caller gets an error that names the first.
	Lease(owner component.ID) (release func(), err error)
	// Acquire takes the read lock for a batch of lookups; the View is valid until its Release, which must follow.
	Acquire() View
	// Subscribe returns a channel that receives after samples were written; wake-ups are merged, never queued.
	Subscribe() (wake <-chan struct{}, cancel func())
}

// FindWriter returns the extension id as a Writer.
func FindWriter(host component.Host, id component.ID) (Writer, error) {
	w, err := find[Writer](host, id)
	if x, ok := w.(*samples); ok {
		x.written.Store(true)
	}
	return w, err
}

// FindReader returns the extension id as a Reader.
func FindReader(host component.Host, id component.ID) (Reader, error) { return find[Reader](host, id) }

func find[T any](host component.Host, id component.ID) (T, error) {
	var none T
	ext, ok := host.GetExtensions()[id]
	if !ok {
		return none,
			fmt.Errorf("cannot find extension %q (define it under `extensions` and list it under `service::extensions`)", id)
	}
	t, ok := ext.(T)
	if !ok {
		return none, fmt.Errorf("extension %q does not hold device samples (use an extension of type gpu_samples)", id)
	}
	return t, nil
}
