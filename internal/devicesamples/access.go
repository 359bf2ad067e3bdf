// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"

	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/plausibility"
)

// Writer is the interface of the extension for components that produce samples.
type Writer interface {
	// Register announces a device and returns a writer for its samples. If the same owner registers
	// a device again, its series continue with the new description, and the earlier DeviceWriter
	// stops working. It returns an error for an empty ID, for a device that another owner writes,
	// and for a device over `max_devices`, together with a DeviceWriter that drops and counts
	// everything (`not_registered`).
	Register(owner component.ID, d Device) (DeviceWriter, error)
	UseWriter
	Contradictions
}

// Contradictions is the interface of the extension for components that compare device values with
// others. What they report is counted in one metric, logged once, and listed on the page.
type Contradictions interface {
	// Contradict reports one contradiction.
	Contradict(c plausibility.Contradiction)
	// ContradictionEntries returns the contradictions so far, one entry for each source and reason.
	ContradictionEntries() []plausibility.Entry
}

// ContradictRatio reports a value that was omitted because it is outside the range of a quantity,
// if the quantity is a ratio.
func ContradictRatio(to Contradictions, d *Device, q gpuquantity.Quantity, v float64) {
	if to != nil && q.Ratio() {
		to.Contradict(plausibility.Contradiction{
			Source: d.Source, Device: d.ID, Reason: plausibility.UtilizationRange,
			Found: fmt.Sprintf("%s of %.4g %%", q, 100*v), Other: "a range of 0 to 100 %",
		})
	}
}

// DeviceWriter writes the samples of one device. Its methods can be called from several goroutines.
type DeviceWriter interface {
	// Write appends samples, oldest first. A field whose newest point is not older than the sample
	// is dropped and counted (`duplicate` or `out_of_order`), so overlapping reads do no harm.
	Write(samples []Sample)
	// WriteEvents appends events in any order.
	WriteEvents(events []Event)
	// Close releases the device. Its samples stay until they are too old. Later writes do nothing.
	Close()
}

// Reader is the interface of the extension for gpu_join.
type Reader interface {
	// Lease makes the caller the only join on these samples until release is called, because two
	// joins would attribute the same energy twice. It returns an error that names the current owner
	// if there is one.
	Lease(owner component.ID) (release func(), err error)
	// Acquire takes the read lock for a batch of lookups. The View is valid until its Release,
	// which the caller must call.
	Acquire() View
	// Subscribe returns a channel that receives after samples were written; notifications are
	// merged, never queued.
	Subscribe() (wake <-chan struct{}, cancel func())
}

// FindWriter returns the extension id as a Writer. It returns an error if the host has no such
// extension or if it is of another type.
func FindWriter(host component.Host, id component.ID) (Writer, error) {
	w, err := find[Writer](host, id)
	if x, ok := w.(interface{ markRequested() }); ok {
		x.markRequested()
	}
	return w, err
}

// FindDivisions returns the extension's divisions, for a component that only reads them.
func FindDivisions(host component.Host, id component.ID) (DivisionStore, error) {
	return find[DivisionStore](host, id)
}

// FindReader returns the extension id as a Reader, with the errors of [FindWriter].
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
		return none, fmt.Errorf("extension %q has no device samples (use an extension of type gpu_samples)", id)
	}
	return t, nil
}
