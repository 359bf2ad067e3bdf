// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Device is a CUdevice.
type Device int32

// Attributes of a device (CUdevice_attribute of cuda.h).
const (
	AttributeMultiprocessors = 16
	AttributeComputeMajor    = 75
	AttributeComputeMinor    = 76
)

// DeviceCount is how many devices the process sees (CUDA_VISIBLE_DEVICES applied).
func (d *Driver) DeviceCount() (int, error) {
	n, err := d.fn.Value("cuDeviceGetCount")
	return int(int32(n)), err
}

// Device returns the device of an ordinal.
func (d *Driver) Device(ordinal int) (Device, error) {
	dev, err := d.fn.Value("cuDeviceGet", uintptr(ordinal))
	return Device(dev), err
}

// Name is the device's model, e.g. "NVIDIA H200".
func (d *Driver) Name(dev Device) (string, error) { return d.fn.String("cuDeviceGetName", int32(dev)) }

// PCI is the device's address in lower case, e.g. "0000:17:00.0".
func (d *Driver) PCI(dev Device) (string, error) {
	s, err := d.fn.String("cuDeviceGetPCIBusId", int32(dev))
	return strings.ToLower(s), err
}

// UUID returns `GPU-<uuid>`, or `MIG-<uuid>` with the physical GPU's as parent. The older of the driver's two functions
// knows only the physical GPU, so a difference between them tells MIG instances apart (and the model, which names the
// profile, does so where the older function is gone).
func (d *Driver) UUID(dev Device) (uuid, parent string, err error) {
	physical, err1 := d.uuid("cuDeviceGetUuid", dev)
	instance, err2 := d.uuid("cuDeviceGetUuid_v2", dev)
	switch {
	case err1 != nil && err2 != nil:
		return "", "", err2
	case err2 != nil:
		return "GPU-" + physical, "", nil
	case err1 == nil && physical != instance:
		return "MIG-" + instance, "GPU-" + physical, nil
	}
	if name, err := d.Name(dev); err == nil && strings.Contains(name, " MIG ") {
		return "MIG-" + instance, "", nil
	}
	return "GPU-" + instance, "", nil
}

func (d *Driver) uuid(name string, dev Device) (string, error) {
	if d.fn.Of[name] == 0 {
		return "", fmt.Errorf("%s lacks %s", d.lib.Path, name)
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = f.Addr(0), uintptr(dev)
	f.Out[1] = 0
	if err := d.fn.Frame(name, f, 2); err != nil {
		return "", err
	}
	b := f.Bytes16(0)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]), nil
}

// Memory is the device's memory in bytes.
func (d *Driver) Memory(dev Device) (int64, error) {
	n, err := d.fn.Value("cuDeviceTotalMem_v2", uintptr(dev))
	return int64(n), err
}

// Attribute reads one attribute of a device.
func (d *Driver) Attribute(dev Device, attribute int) (int, error) {
	v, err := d.fn.Value("cuDeviceGetAttribute", uintptr(attribute), uintptr(dev))
	return int(int32(v)), err
}
