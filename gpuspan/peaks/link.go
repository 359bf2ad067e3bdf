// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package peaks

// HostLink is the path between a device and its host: PCIe of a generation and width, or a chip-to-chip link whose
// rate is stated. The zero value is an unknown link.
type HostLink struct {
	Generation int     // of PCIe; 0 where the link is not PCIe
	Lanes      int     // of PCIe
	C2C        float64 // bytes per second in one direction of NVLink-C2C, where that is the link
}

// Rate is the peak in bytes per second of one direction; zero where unknown.
func (l HostLink) Rate() float64 {
	if l.C2C > 0 {
		return l.C2C
	}
	return PCIeRate(l.Generation, l.Lanes)
}

// PCIeRate is the peak of one direction of a PCIe link in bytes per second, line coding taken off: 8b/10b to
// generation 2, 128b/130b to 5, and the 242 of 256 bytes of a flit in 6. Headers of packets are not taken off
// (they cost 5 to 15 % more, by payload size). Zero for a generation or width that does not exist.
//
// Source: PCI Express Base Specification, revisions 1.1, 2.1, 3.1, 4.0, 5.0 and 6.0.
func PCIeRate(generation, lanes int) float64 {
	switch lanes {
	case 1, 2, 4, 8, 12, 16, 32:
	default:
		return 0
	}
	var lane float64
	switch generation {
	case 1:
		lane = 2.5e9 * 8 / 10
	case 2:
		lane = 5e9 * 8 / 10
	case 3:
		lane = 8e9 * 128 / 130
	case 4:
		lane = 16e9 * 128 / 130
	case 5:
		lane = 32e9 * 128 / 130
	case 6:
		lane = 64e9 * 242 / 256
	}
	return lane / 8 * float64(lanes)
}
