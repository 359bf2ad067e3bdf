// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import "github.com/otelgpu/otelgpu/internal/occupancy"

// Device is a file's description of a device.
type Device struct {
	Ordinal int64
	Model   string // empty: not stated
	ID      string // value of hw.id, if the file states one
	Limits  occupancy.Device

	// peaks that the file states, in FLOP and bytes per second; 0: the model's
	FLOPRate, Bandwidth float64
}

// Framework is what a program was written with, whose terms remedies use.
type Framework int

// Frameworks. Without a statement, remedies name PyTorch's terms.
const (
	PyTorch Framework = iota
	JAX
	XLA // JAX, TensorFlow or PyTorch/XLA
)

// Meta is a file's description of itself. Fields that the file does not state are zero.
type Meta struct {
	Base         int64 // unix ns of Event.Start 0
	Devices      []Device
	Rank         int64
	HasRank      bool
	WorldSize    int64
	LocalRank    int64
	HasLocalRank bool
	JobID        string
	Host         string
	Windows      bool // the file states that the host runs Windows
	Framework    Framework
	Service      string
	Ranks        []MergedRank      // of a file merged from files of several ranks
	TraceParent  string            // W3C traceparent under which the window hangs
	Resource     map[string]string // resource attributes that the application left in the file
	TimingSource string            // value of gpu.timing.source of device activities; empty if it has no name
	Partial      string            // why only the beginning of the file could be read; empty: all of it was
	Dropped      string            // the profiler's own statement that records are missing; empty: none
}

// MergedRank is a rank of a file that was merged from several, with its processes and devices.
type MergedRank struct {
	Rank               int64
	Processes, Devices map[int64]bool
}

// DeviceOf returns the description of a device. Files with one model return it for any ordinal:
// some number their devices differently in the list and in the rows.
func (m *Meta) DeviceOf(ordinal int64) (stated Device) {
	for i := range m.Devices {
		switch d := &m.Devices[i]; {
		case d.Ordinal == ordinal:
			return *d
		case i == 0:
			stated.Model, stated.Limits = d.Model, d.Limits
		default:
			if d.Model != m.Devices[0].Model {
				stated.Model = ""
			}
			if d.Limits != m.Devices[0].Limits {
				stated.Limits = occupancy.Device{}
			}
		}
	}
	return stated
}
