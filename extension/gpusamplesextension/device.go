// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"strings"
	"time"
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
	Memory          int64              // By, size of device memory
	MemoryBandwidth float64            // By/s
	PCIeBandwidth   float64            // By/s, one direction of the negotiated link
	NVLinkBandwidth float64            // By/s, one direction, all links
	FLOPRate        map[string]float64 // {flop}/s dense at boost clock, by gpu.flop.precision ("bf16"); not changed after Register
	Power           float64            // W, enforced limit
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
