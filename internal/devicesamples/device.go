// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Device describes one GPU or one MIG instance. Empty strings and zeros mean unknown. As JSON it is
// an entry of a recording's list of devices.
type Device struct {
	ID string `json:"id"` // hw.id: `GPU-<uuid>` or `MIG-<uuid>`; required
	// hw.parent: the physical GPU's ID if ID is a MIG instance, otherwise empty
	Parent        string `json:"parent,omitempty"`
	Name          string `json:"name,omitempty"`   // hw.name: gpu0
	Model         string `json:"model,omitempty"`  // hw.model, as the driver reports it
	Vendor        string `json:"vendor,omitempty"` // hw.vendor
	DriverVersion string `json:"driver,omitempty"` // hw.driver_version
	PCIBDF        string `json:"pci,omitempty"`    // gpu.pci.bdf; NVML's or Linux' spelling, compared after NormalizePCI
	// Name of the device file in /dev by the driver's minor number, which is not its ordinal:
	// "nvidia0"; of a MIG instance followed by its number, "nvidia0/gi3".
	DeviceFile string `json:"device_file,omitempty"`
	Ordinal    int    `json:"ordinal"`          // gpu.device.ordinal as the source numbers it; -1 when unknown
	Source     string `json:"source,omitempty"` // gpu.measurement.source: dcgm, nvml, gpm, replay, simulated
	HostName   string `json:"-"`                // host.name of the device's machine
	HostID     string `json:"-"`                // host.id of that machine
	// Interval is the requested time between two samples; 0: unknown, then it is measured.
	Interval time.Duration `json:"-"`
	// Refresh is how old a value of the energy counter can be when it is read. It is used while
	// each reading differs from the one before, for then the readings do not show it; a time that
	// exceeds the one between two readings counts as that. 0: 100 ms for dcgm, nvml, gpm and
	// replay, otherwise each value is current.
	Refresh time.Duration `json:"-"`
	// PowerWindow is the time of which a reading of power is the mean. 0: 25 ms for dcgm, nvml,
	// gpm and replay.
	PowerWindow time.Duration `json:"-"`
	MIG                       // share of the physical GPU, if ID is a MIG instance
	Limits                    // peaks reported by the device itself
}

// MIG is an instance's share of its physical GPU. All zero for a whole one.
type MIG struct {
	Profile   string `json:"mig_profile,omitempty"` // as the driver reports it, e.g. "3g.40gb"
	SMs       int    `json:"sms,omitempty"`         // streaming multiprocessors of the instance
	BoardSMs  int    `json:"board_sms,omitempty"`   // streaming multiprocessors of the physical GPU
	Slices    int    `json:"slices,omitempty"`      // memory slices of the instance
	AllSlices int    `json:"all_slices,omitempty"`  // memory slices of the physical GPU
}

// Limits are peaks of the device as it is (as negotiated, as scaled for a MIG instance). 0 means
// unknown.
type Limits struct {
	Memory          int64   `json:"memory,omitempty"`           // By, size of device memory
	MemoryBandwidth float64 `json:"memory_bandwidth,omitempty"` // By/s
	PCIeBandwidth   float64 `json:"pcie_bandwidth,omitempty"`   // bytes per second, one direction of the negotiated link
	NVLinkBandwidth float64 `json:"nvlink_bandwidth,omitempty"` // bytes per second, one direction, all links together
	// dense FLOP per second at boost clock, by gpu.flop.precision ("bf16"); not changed after
	// Register
	FLOPRate map[string]float64 `json:"flop_rate,omitempty"`
	Power    float64            `json:"power_limit,omitempty"` // watts, enforced limit
}

// Valid returns d with texts that are valid UTF-8 and at most 256 bytes long, as the texts of
// spans, because they become labels and keys.
func (d Device) Valid() Device {
	for _, text := range [...]*string{
		&d.ID, &d.Parent, &d.Name, &d.Model, &d.Vendor, &d.DriverVersion, &d.PCIBDF, &d.Source, &d.HostName, &d.HostID,
		&d.MIG.Profile,
	} {
		*text = spanfacts.Clip(*text)
	}
	return d
}

// NormalizeID returns the comparable form of an identity: prefix `GPU-` or `MIG-` removed, lower
// case. Bare UUIDs, as some emitters write them, and prefixed ones of the same device become equal.
func NormalizeID(id string) string { return strings.ToLower(spanfacts.Bare(id)) }

// NormalizePCI returns the comparable form of a PCI address: lower case, domain of four digits, as
// Linux writes it ("00000000:17:00.0" as NVML writes it, "17:00.0" and "0000:17:00.0" become
// equal).
func NormalizePCI(bdf string) string {
	bdf = strings.ToLower(strings.TrimSpace(bdf))
	if bdf == "" {
		return ""
	}
	if strings.Count(bdf, ":") == 1 {
		return "0000:" + bdf
	}
	domain, rest, _ := strings.Cut(bdf, ":")
	domain = strings.TrimLeft(domain, "0")
	return "0000"[min(len(domain), 4):] + domain + ":" + rest
}

// device is the stored state of one GPU or MIG instance, guarded by the store's lock.
type device struct {
	desc    Device
	owner   component.ID
	open    bool // the owner has not released it
	gen     int  // counts registrations: only the newest one writes
	series  [NumFields]*series
	events  []Event // by time, at most maxEvents
	newest  int64   // newest sample of any field
	arrived int64   // when it was written
	settled int64   // oldest newest sample among the live fields; never decreases
	primary *series // its times are used for the device: the first live field, if possible one that is not slow
}

const maxEvents = 1024

// refresh recomputes what a write changed. A field without a sample for gapFactor intervals is no
// longer live and delays nothing.
func (d *device) refresh(now int64) {
	before := d.newest
	d.newest, d.primary = 0, nil
	for _, s := range d.series {
		if s != nil && s.len() > 0 {
			d.newest = max(d.newest, s.read)
		}
	}
	if d.newest != before {
		d.arrived = now
	}
	settled := d.newest
	for _, s := range d.series {
		if s == nil || s.len() == 0 || (s.interval > 0 && s.read < d.newest-gapFactor*s.interval) {
			continue
		}
		settled = min(settled, s.read)
		if d.primary == nil || d.primary.slow() && !s.slow() {
			d.primary = s
		}
	}
	d.settled = max(d.settled, settled)
}

// addEvent keeps the events in time order; duplicates are ignored.
func (d *device) addEvent(e Event) {
	i := sort.Search(len(d.events), func(i int) bool { return d.events[i].Time > e.Time })
	for j := i - 1; j >= 0 && d.events[j].Time == e.Time; j-- {
		if d.events[j] == e {
			return
		}
	}
	switch {
	case len(d.events) < maxEvents:
		d.events = slices.Insert(d.events, i, e)
	case i > 0: // the oldest is removed
		copy(d.events, d.events[1:i])
		d.events[i-1] = e
	}
}

func (d *device) setDescription(desc Device) {
	desc.PCIBDF = NormalizePCI(desc.PCIBDF)
	d.desc = desc
	for _, s := range d.series {
		if s != nil {
			s.nominal = int64(max(desc.Interval, 0))
		}
	}
}

// Field is a sampled quantity of a device. The unit is always the base unit given here, whatever
// the source reports (DCGM's mJ, MiB, MHz and percents are converted by the writer).
type Field = gpuquantity.Quantity

// The fields of a Sample. Their Kind defines how values between two samples are read.
const (
	Energy            = gpuquantity.Energy            // joules, cumulative since an unknown origin; of the physical GPU
	Power             = gpuquantity.Power             // watts, of the physical GPU
	Temperature       = gpuquantity.Temperature       // degrees Celsius, of the chip
	Utilization       = gpuquantity.Utilization       // ratio of time in which at least one kernel ran
	SMUtilization     = gpuquantity.SMUtilization     // ratio of time in which an SM had a resident warp, over all SMs
	SMOccupancy       = gpuquantity.SMOccupancy       // ratio of resident warps to those possible
	TensorUtilization = gpuquantity.TensorUtilization // ratio of cycles in which the tensor pipe was active
	DRAMUtilization   = gpuquantity.DRAMUtilization   // ratio of time in which the memory interface was active
	ClockSM           = gpuquantity.ClockSM           // Hz
	ClockMemory       = gpuquantity.ClockMemory       // Hz
	MemoryUsed        = gpuquantity.MemoryUsed        // By
	Throttle          = gpuquantity.Throttle          // a mask of ThrottleReason bits, exact in a float64
	PCIeTransmit      = gpuquantity.PCIeTransmit      // By, cumulative, device to host
	PCIeReceive       = gpuquantity.PCIeReceive       // By, cumulative, host to device
	NVLinkTransmit    = gpuquantity.NVLinkTransmit    // By, cumulative, all links
	NVLinkReceive     = gpuquantity.NVLinkReceive     // By, cumulative, all links

	NumFields = gpuquantity.NumRings // number of fields; not a field
)

// Kind defines the meaning of a sampled value between samples.
type Kind = gpuquantity.Kind

// Kinds of field.
const (
	KindInstant  = gpuquantity.Instant  // the value at the sample's time, interpolated linearly between two samples
	KindInterval = gpuquantity.Interval // a mean over the time since the previous sample
	KindCounter  = gpuquantity.Counter  // only increases; a decrease is a reset
	KindMask     = gpuquantity.Mask     // bits set since the previous sample; the mean is the share of time with any
)

// Sample holds the known values read from one device at one moment. Fields with different times are
// different samples.
type Sample struct {
	Time   int64              // Unix nanoseconds: when the value was measured, not when it was read
	Known  uint32             // bit f set: Values[f] is known
	Values [NumFields]float64 // in base units, see Field
}

// Set stores a value. NaN, infinities and values outside the domain of the field mean unknown and
// are not stored.
func (s *Sample) Set(f Field, v float64) {
	if int(f) >= NumFields || !f.Valid(v) {
		return
	}
	s.Values[f] = v
	s.Known |= 1 << f
}

// EventKind is the kind of an event.
type EventKind uint8

// Kinds of event.
const (
	EventXID            EventKind = iota // Code is the XID number
	EventECCCorrected                    // Count is the number of new single-bit errors
	EventECCUncorrected                  // Count is the number of new double-bit errors
	EventThrottleStart                   // Code is the ThrottleReason that started
	EventThrottleEnd                     // Code is the ThrottleReason that ended
	EventFault                           // an operational event without an XID; Code is the module's
)

// Event is one event of a device.
type Event struct {
	Time  int64     // unix ns
	Kind  EventKind // decides which of Code and Count is set
	Code  int64     // XID number or ThrottleReason
	Count int64     // new errors
	Fault Fault     // of EventFault, and of EventXID if the driver reports it
}

// Fault is what the driver reports as a GPU Operational Event. Numbers that are unknown here are
// kept.
type Fault struct {
	Module   string `json:"module,omitempty"` // of the GPU, such as GPU-NVLINK
	Category uint32 `json:"category,omitempty"`
	Code     uint32 `json:"code,omitempty"` // of the module
	Severity uint32 `json:"severity,omitempty"`
}

// CategoryName returns the name of the category, or its number in hexadecimal.
func (f *Fault) CategoryName() string {
	names := [...]string{
		1: "timeout", "memory_integrity_error", "interconnect_error", "corruption_detected", "security_error",
	}
	if int(f.Category) < len(names) && f.Category > 0 {
		return names[f.Category]
	}
	return fmt.Sprintf("0x%04x", f.Category)
}

// SeverityName returns the name of the severity, or its number.
func (f *Fault) SeverityName() string {
	switch f.Severity {
	case 10:
		return "informational"
	case 20:
		return "corrected"
	case 30:
		return "recoverable"
	case 40:
		return "fatal"
	}
	return strconv.FormatUint(uint64(f.Severity), 10)
}

// CodeName returns the code in hexadecimal, as the driver's documentation lists it.
func (f *Fault) CodeName() string { return fmt.Sprintf("0x%04x", f.Code) }

// ThrottleReason is a bit of the Throttle field: a reason for which clocks are lowered. The bits
// equal NVML's clock event reasons (nvml.h, nvmlClocksEventReason…), which DCGM's field 112 passes
// on unchanged. Idle is not included.
type ThrottleReason uint64

// The throttle reasons; String is the value of gpu.throttle.reason.
const (
	ThrottleApplicationsClocks ThrottleReason = 0x2   // application clocks set by the user
	ThrottleSWPowerCap         ThrottleReason = 0x4   // software power cap
	ThrottleHWSlowdown         ThrottleReason = 0x8   // hardware slowdown: temperature, power brake or power draw
	ThrottleSyncBoost          ThrottleReason = 0x10  // slower GPU in the same sync boost group
	ThrottleSWThermal          ThrottleReason = 0x20  // software thermal slowdown
	ThrottleHWThermal          ThrottleReason = 0x40  // hardware thermal slowdown
	ThrottleHWPowerBrake       ThrottleReason = 0x80  // external power brake
	ThrottleDisplayClock       ThrottleReason = 0x100 // display clock setting
	ThrottleBoardLimit         ThrottleReason = 0x200 // limit of the board, since driver R615
	ThrottleReliability        ThrottleReason = 0x400 // limit for reliability, since driver R615

	throttleIdle ThrottleReason = 0x1 // no work: the device is not throttled
)

// throttleReasons are the values of gpu.throttle.reason, by bit. NVML's header reserves the right
// to add reasons: other bits are named by their number.
var throttleReasons = [...]string{
	1: "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown",
	"hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clock_setting", "board_limit", "reliability",
}

// ThrottleMask returns the value of the Throttle field for the driver's mask of reasons: every bit
// except idle. A float64 holds 53 adjacent bits; of a mask that spans more, the highest are
// removed.
func ThrottleMask(reasons uint64) float64 {
	reasons &^= uint64(throttleIdle)
	for bits.Len64(reasons)-bits.TrailingZeros64(reasons) > 53 {
		reasons &^= 1 << (bits.Len64(reasons) - 1)
	}
	return float64(reasons)
}

// String returns the value of gpu.throttle.reason for a single bit.
func (r ThrottleReason) String() string {
	if i := bits.TrailingZeros64(uint64(r)); bits.OnesCount64(uint64(r)) == 1 && i > 0 && i < len(throttleReasons) {
		return throttleReasons[i]
	}
	return "0x" + strconv.FormatUint(uint64(r), 16)
}

// Each calls fn for every single bit that is set, lowest first.
func (r ThrottleReason) Each(fn func(ThrottleReason)) {
	for r != 0 {
		bit := r & -r
		fn(bit)
		r &^= bit
	}
}
