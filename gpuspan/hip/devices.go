// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"fmt"
	"os"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// moduleVersion is where AMD's out-of-tree kernel module states its version; the in-tree one has none.
const moduleVersion = "/sys/module/amdgpu/version"

// Devices lists the GPUs that the process sees. What HIP does not tell stays empty; only a device without a name is an
// error.
func (b *Backend) Devices() ([]backend.Device, error) {
	if b.err != nil {
		return nil, b.err
	}
	version, _ := os.ReadFile(moduleVersion)
	out := make([]backend.Device, len(b.devices))
	for i := range b.devices {
		name, err := b.fn.String("hipDeviceGetName", int32(i))
		if err != nil {
			return nil, fmt.Errorf("cannot identify HIP device %d: %w", i, err)
		}
		pci, _ := b.fn.String("hipDeviceGetPCIBusId", int32(i))
		memory, _ := b.fn.Value("hipDeviceTotalMem", uintptr(i))
		out[i] = backend.Device{
			Ordinal: i, UUID: b.uuid(i), Model: name, Vendor: "AMD", DriverVersion: strings.TrimSpace(string(version)),
			PCIBDF: strings.ToLower(pci), MemoryTotal: int64(memory),
		}
	}
	return out, nil
}

// uuid is `GPU-` with the 16 characters that ROCm uses, or with hexadecimal bytes where they are not characters.
func (b *Backend) uuid(device int) string {
	if b.fn.Of["hipDeviceGetUuid"] == 0 {
		return ""
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = f.Addr(0), uintptr(device)
	f.Out[1] = 0
	if f.Call(b.fn.Of["hipDeviceGetUuid"], 2) != 0 {
		return ""
	}
	u := f.Bytes16(0)
	text, rest, _ := strings.Cut(string(u[:]), "\x00")
	switch {
	case text == "" && strings.Trim(rest, "\x00") == "", text == "XX":
		return "" // ROCm's way to say that the device has none
	case len(text) == len(u) && strings.Trim(text, "0123456789abcdefABCDEF") == "":
		return "GPU-" + text
	}
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
