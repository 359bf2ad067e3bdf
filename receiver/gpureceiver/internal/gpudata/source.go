// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpudata defines what every source of device data returns: values with the time of their
// measurement, and the interface Source.
package gpudata

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
)

// Source reads devices. No method is called while another runs, but any of them may block for long
// (a hung host engine blocks for a minute): the caller waits elsewhere. Times that a source gives
// are times of measurement.
type Source interface {
	// Name is dcgm, nvml, replay or simulated, for logs and telemetry.
	Name() string
	// Open connects and finds the devices; ErrUnavailable in the chain when there is nothing to
	// open here. After an error nothing needs to be closed, and Open can be called again.
	Open() error
	// Devices describes what Batch.Values refers to by index. The slice is not changed later.
	Devices() []devicesamples.Device
	// Pace is the time between two Reads that the source requires, after Open.
	Pace() time.Duration
	// Read appends everything that was measured since the last Read. After an error the source must
	// be closed and opened again. io.EOF means that a finite source has ended.
	Read(b *Batch) error
	// Close releases what Open acquired.
	Close() error
}

// ErrUnavailable is in the chain of an Open error if the machine lacks what the source needs
// (library, driver, device), as opposed to a configured service that does not respond.
var ErrUnavailable = errors.New("not available")

// Value is one measured value.
type Value struct {
	Time     int64 // unix ns
	V        float64
	Device   uint16 // index into Source.Devices
	Quantity gpuquantity.Quantity
}

// Event is an event of a device.
type Event struct {
	Device uint16
	devicesamples.Event
}

// BytesUnknown is the memory of a process if it is unknown.
const BytesUnknown = -1

// Notice is something that is missing for longer than one read.
type Notice struct {
	Kind    NoticeKind
	Devices []string // names
	Err     error    // why
	Normal  bool     // for devices of this kind: not a fault
}

// NoticeKind is the kind of missing data.
type NoticeKind string

// The kinds of notices.
const (
	NoticeProfiling NoticeKind = "profiling" // ratios of the profiling fields
	NoticeIdentity  NoticeKind = "identity"  // the device's ID, so everything
	NoticeClock     NoticeKind = "clock"     // samples of the present time
	// NoticePermission is about quantities that the driver gave before.
	NoticePermission NoticeKind = "permission"
)

// Health is the value of hw.status.
type Health uint8

// The states of a device.
const (
	HealthUnknown Health = iota
	HealthOK
	HealthDegraded
	HealthPredictedFailure
	HealthFailed // the driver reports that the device is lost or detached
	HealthSilent // it returns only blanks, although it is listed
)

// Condition is the state of a device's memory.
type Condition struct{ remapFailed, remapPending, retirePending bool }

// Take records a value of any quantity.
func (c *Condition) Take(q gpuquantity.Quantity, v float64) {
	switch q {
	case gpuquantity.RemapFailed:
		c.remapFailed = v > 0
	case gpuquantity.RemapPending:
		c.remapPending = v > 0
	case gpuquantity.RetirePending:
		c.retirePending = v > 0
	}
}

// Health of a board that answers.
func (c *Condition) Health() Health {
	switch {
	case c.remapFailed:
		return HealthDegraded
	case c.remapPending || c.retirePending:
		return HealthPredictedFailure
	}
	return HealthOK
}

// MIGProfile returns the name of a MIG profile from its slices and its memory in bytes, as the
// driver writes it ("1g.10gb", "1c.3g.40gb"); empty when the memory is not known. Drivers round the
// memory up to whole GB.
func MIGProfile(gpuSlices, computeSlices uint, memory int64) string {
	if gpuSlices == 0 || memory <= 0 {
		return ""
	}
	const gib = 1 << 30
	name := fmt.Sprintf("%dg.%dgb", gpuSlices, (memory+gib-1)/gib)
	if computeSlices > 0 && computeSlices < gpuSlices {
		name = fmt.Sprintf("%dc.%s", computeSlices, name)
	}
	return name
}

// MemorySlices returns the memory slices of a MIG instance and of its physical GPU, by their sizes
// in bytes: MIG divides the memory and its bandwidth into eighths, of which an instance of an A30
// or an RTX PRO 6000 has at least two. 0 means unknown.
func MemorySlices(instance, board int64) (slices, all int) {
	const eighths = 8
	n := int(math.Round(eighths * float64(instance) / float64(max(board, 1))))
	if instance <= 0 || n < 1 || n > eighths {
		return 0, 0
	}
	return n, eighths
}

// DropReason is why a raw value was dropped.
type DropReason uint8

// Reasons for dropping.
const (
	DropBlank         DropReason = iota // the source reports that it has no value
	DropStatus                          // the source reports that reading failed
	DropStale                           // older than max_staleness
	DropUnknownEntity                   // of a device or instance that is not (or no longer) there
	DropNotFinite                       // NaN or infinite
	DropOutOfRange                      // no device can have it
	DropMalformed                       // an invalid part of a recording
	DropProcess                         // of a process beyond the limit of a device
	DropOverrun                         // a backlog too large to read: one for each time, the values are not known
	NumDropReasons    = iota
)

// Batch is the result of one Read.
type Batch struct {
	Values    []Value
	Events    []Event
	Processes []ProcessMemory
	Health    []Health // by device index; shorter means unknown
	Changed   bool     // Devices gives a new list, to which this batch refers
	Listed    int64    // when Processes were all that compute on any device, unix ns; 0: not listed
	Notices   []Notice // all that hold now
	Refused   int64    // failed attempts to obtain what a notice is about
	Dropped   [NumDropReasons]int64
	Wrong     []Value // some of the ratios that were dropped as out of range, to be reported
}

// Reset empties the batch and keeps its memory, unless an unusual burst (after a long stall) made
// it large.
func (b *Batch) Reset() {
	const keep = 64 << 10
	if cap(b.Values) > keep {
		b.Values = nil
	}
	*b = Batch{
		Values: b.Values[:0], Events: b.Events[:0], Processes: b.Processes[:0], Health: b.Health[:0], Notices: b.Notices[:0],
		Wrong: b.Wrong[:0],
	}
}

const mostWrong = 64

// Add appends a value that is finite.
func (b *Batch) Add(device int, q gpuquantity.Quantity, t int64, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		b.Dropped[DropNotFinite]++
		return
	}
	if !q.Valid(v) {
		b.Dropped[DropOutOfRange]++
		if q.Ratio() && len(b.Wrong) < mostWrong {
			b.Wrong = append(b.Wrong, Value{Time: t, V: v, Device: uint16(device), Quantity: q})
		}
		return
	}
	b.Values = append(b.Values, Value{Time: t, V: v, Device: uint16(device), Quantity: q})
}

// NotBuilt represents a source whose library is not in this build: it cannot be opened and states
// why.
func NotBuilt(name, library string) Source { return notBuilt{name, library} }

type notBuilt struct{ name, library string }

func (s notBuilt) Name() string { return s.name }
func (s notBuilt) Open() error {
	return fmt.Errorf("built with gpuspan_static, or not for Linux on amd64 or arm64: the %s library cannot be loaded: %w",
		s.library, ErrUnavailable)
}
func (notBuilt) Devices() []devicesamples.Device { return nil }
func (notBuilt) Pace() time.Duration             { return time.Second }
func (notBuilt) Read(*Batch) error               { return nil }
func (notBuilt) Close() error                    { return nil }

// ProcessSource reads how processes use devices. Its methods are called from one goroutine.
type ProcessSource interface {
	// Open connects; ErrUnavailable in the chain when there is nothing to open here.
	Open() error
	// Read returns the use of each physical GPU since a time by its hw.id, in Unix nanoseconds; 0
	// means for as long as the driver remembers. With list, it also lists the processes that have a
	// context. After an error the source must be closed and opened again. The result is valid until
	// the next call.
	Read(since func(id string) int64, list bool) ([]ProcessUse, error)
	// Close releases what Open acquired.
	Close() error
}

// ProcessUse is the use of a physical GPU by processes.
type ProcessUse struct {
	Device  string // hw.id
	Time    int64  // of the read, in Unix nanoseconds
	Percent []ProcessPercent
	// Reported states whether the driver reports the utilization of each process. It does not for
	// GPUs with MIG instances.
	Reported bool
	Running  []ProcessMemory // that have a context, if they were listed
	// Operational states whether the driver reports GPU Operational Events, and Faults are new
	// ones.
	Operational bool
	Faults      []devicesamples.Event
}

// ProcessPercent is the utilization of a device by one process in whole percent. Drivers report
// values that no process can have now and then.
type ProcessPercent struct {
	PID     int64 // as the host counts it
	Time    int64 // of the newest measurement that is included, in Unix nanoseconds
	Percent uint32
}

// ProcessMemory is a process with a context on a device.
type ProcessMemory struct {
	Device string // hw.id of the physical GPU or the instance
	PID    int64  // as the host counts it
	Bytes  int64  // of device memory; BytesUnknown if the driver does not report it
	// Facts describe the process if it is not one of this host.
	Facts *processes.Facts
}
