// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// procVersion is where NVIDIA's kernel module states its version. WSL has no such file.
const procVersion = "/proc/driver/nvidia/version"

// Devices lists the GPUs that the process sees, in the driver's order. What the driver does not tell stays empty; only
// a device without a name is an error.
func (b *Backend) Devices() ([]backend.Device, error) {
	if b.err != nil {
		return nil, b.err
	}
	text, _ := os.ReadFile(procVersion)
	version := driverVersion(string(text))
	out := make([]backend.Device, len(b.devices))
	for i := range b.devices {
		h := b.devices[i].handle
		name, err := b.driver.Name(h)
		if err != nil {
			return nil, fmt.Errorf("cannot identify CUDA device %d: %w", i, err)
		}
		d := backend.Device{Ordinal: i, Model: name, Vendor: "NVIDIA", DriverVersion: version}
		d.UUID, d.Parent, _ = b.driver.UUID(h)
		d.PCIBDF, _ = b.driver.PCI(h)
		d.MemoryTotal, _ = b.driver.Memory(h)
		out[i] = d
	}
	return out, nil
}

var versionPattern = regexp.MustCompile(`\b\d{3,}(\.\d+){1,2}\b`)

// driverVersion finds e.g. 570.86.10 in the first line, which reads
// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  …`.
func driverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return versionPattern.FindString(line)
}
