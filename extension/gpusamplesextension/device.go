// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"sort"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
)

// Device describes one GPU or one MIG instance. Empty strings and zeros mean unknown.
type Device struct {
	ID            string        // hw.id: `GPU-<uuid>` or `MIG-<uuid>`; required
	Parent        string        // hw.parent: the physical GPU's ID when ID is a MIG instance, else empty
	Name          string        // hw.name: gpu0
	Model         string        // hw.model, as the driver says
	Vendor        string        // hw.vendor
	DriverVersion string        // hw.driver_version
	PCIBDF        string        // gpu.pci.bdf; any of NVML's and Linux' spellings, compared after NormalizePCI
	Ordinal       int           // gpu.device.ordinal as the source numbers it; -1 when unknown
	HostName      string        // host.name of the machine that holds the device
	HostID        string        // host.id of that machine
	Source        string        // gpu.measurement.source: dcgm, nvml, gpm, replay, simulated
	Interval      time.Duration // asked time between two samples; 0 when unknown, then it is measured
	MIG           MIG           // share of the board, when ID is a MIG instance
	Limits        Limits        // what the device itself reports about its peaks
}

// MIG is an instance's share of its board. All zero for a whole board.
type MIG struct {
	Profile           string // as the driver says, e.g. "3g.40gb"
	SMs, BoardSMs     int    // streaming multiprocessors of the instance and of the board
	Slices, AllSlices int    // memory slices of the instance and of the board
}

// Limits are peaks of the device as it is (as negotiated, as scaled for a MIG instance). 0 means unknown.
type Limits struct {
	Memory          int64   // By, size of device memory
	MemoryBandwidth float64 // By/s
	PCIeBandwidth   float64 // By/s, one direction of the negotiated link
	NVLinkBandwidth float64 // By/s, one direction, all links
	// {flop}/s dense at boost clock, by gpu.flop.precision ("bf16"); not changed after Register
	FLOPRate map[string]float64
	Power    float64 // W, enforced limit
}

// NormalizeID makes an identity comparable: prefix `GPU-` or `MIG-` removed, lower case. Bare UUIDs, as some emitters
// write them, and prefixed ones of the same device become equal.
func NormalizeID(id string) string {
	if len(id) > 4 && (strings.EqualFold(id[:4], "GPU-") || strings.EqualFold(id[:4], "MIG-")) {
		id = id[4:]
	}
	return strings.ToLower(id)
}

// NormalizePCI makes a PCI address comparable: lower case, domain of four digits, as Linux writes it
// ("00000000:17:00.0" as NVML writes it, "17:00.0" and "0000:17:00.0" become equal).
func NormalizePCI(bdf string) string {
	bdf = strings.ToLower(strings.TrimSpace(bdf))
	if bdf == "" {
		return ""
	}
	if strings.Count(bdf, ":") == 1 {
		return "0000:" + bdf
	}
	domain, rest, _ := strings.Cut(bdf, ":")
	for len(domain) > 4 && domain[0] == '0' {
		domain = domain[1:]
	}
	for len(domain) < 4 {
		domain = "0" + domain
	}
	return domain + ":" + rest
}

// device is the stored state of one GPU or MIG instance, guarded by the store's lock.
type device struct {
	desc    Device
	key     string // NormalizeID(desc.ID)
	owner   component.ID
	open    bool // the owner has not given it up
	gen     int  // counts registrations: only the newest one writes
	series  [NumFields]*series
	events  []Event // by time, at most maxEvents
	newest  int64   // newest sample of any field
	settled int64   // oldest newest sample among the live fields; never decreases
	primary *series // whose times stand for the device's: the first live field
}

const maxEvents = 1024

// refresh recomputes what a write changed. A field that has been silent for gapFactor intervals is no longer live
// and holds nobody up.
func (d *device) refresh() {
	d.newest, d.primary = 0, nil
	for _, s := range d.series {
		if s != nil && s.len() > 0 {
			d.newest = max(d.newest, s.last().t)
		}
	}
	settled := d.newest
	for _, s := range d.series {
		if s == nil || s.len() == 0 || (s.interval > 0 && s.last().t < d.newest-gapFactor*s.interval) {
			continue
		}
		settled = min(settled, s.last().t)
		if d.primary == nil {
			d.primary = s
		}
	}
	d.settled = max(d.settled, settled)
}

// addEvent keeps the events in time order; one that was already there is ignored.
func (d *device) addEvent(e Event) bool {
	i := sort.Search(len(d.events), func(i int) bool { return d.events[i].Time > e.Time })
	for j := i - 1; j >= 0 && d.events[j].Time == e.Time; j-- {
		if d.events[j] == e {
			return false
		}
	}
	if len(d.events) == maxEvents {
		if i == 0 {
			return false
		}
		copy(d.events, d.events[1:i])
		d.events[i-1] = e
		return true
	}
	d.events = append(d.events, Event{})
	copy(d.events[i+1:], d.events[i:])
	d.events[i] = e
	return true
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

// idleFor says how long the device has had no new sample.
func (d *device) idleFor(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, d.newest))
}
