// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import "github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"

// fakeDevice answers what a test says. What the test does not expect to be called panics.
type fakeDevice struct {
	GetUUIDFunc                         func() (string, nvml.Return)
	GetNameFunc                         func() (string, nvml.Return)
	GetPciInfoFunc                      func() (nvml.PciInfo, nvml.Return)
	GetMemoryInfoFunc                   func() (nvml.Memory, nvml.Return)
	GetMemoryInfoV2Func                 func() (nvml.MemoryV2, nvml.Return)
	GetEnforcedPowerLimitFunc           func() (uint32, nvml.Return)
	GetMaxPcieLinkGenerationFunc        func() (int, nvml.Return)
	GetMaxPcieLinkWidthFunc             func() (int, nvml.Return)
	GetMigModeFunc                      func() (int, int, nvml.Return)
	GetMaxMigDeviceCountFunc            func() (int, nvml.Return)
	GetMigDeviceHandleByIndexFunc       func(int) (nvml.Device, nvml.Return)
	GetGpuInstanceIDFunc                func() (int, nvml.Return)
	GetComputeInstanceIDFunc            func() (int, nvml.Return)
	GetAttributesFunc                   func() (nvml.DeviceAttributes, nvml.Return)
	GetTotalEnergyConsumptionFunc       func() (uint64, nvml.Return)
	GetFieldValuesFunc                  func([]nvml.FieldValue) nvml.Return
	GetPowerUsageFunc                   func() (uint32, nvml.Return)
	GetUtilizationRatesFunc             func() (nvml.Utilization, nvml.Return)
	GetCurrentClocksThrottleReasonsFunc func() (uint64, nvml.Return)
	GetClockInfoFunc                    func(nvml.ClockType) (uint32, nvml.Return)
	GetTemperatureFunc                  func() (uint32, nvml.Return)
	GetEncoderUtilizationFunc           func() (uint32, nvml.Return)
	GetDecoderUtilizationFunc           func() (uint32, nvml.Return)
	GetTotalEccErrorsFunc               func(nvml.MemoryErrorType) (uint64, nvml.Return)
	GetPcieReplayCounterFunc            func() (int, nvml.Return)
	GetRemappedRowsFunc                 func() (int, int, bool, bool, nvml.Return)
	GetRetiredPagesFunc                 func(nvml.PageRetirementCause) (int, nvml.Return)
	RegisterEventsFunc                  func(uint64, nvml.EventSet) nvml.Return
	GpmQueryDeviceSupportFunc           func() (nvml.GpmSupport, nvml.Return)
	GpmSampleGetFunc                    func(nvml.GpmSample) nvml.Return
	GpmMigSampleGetFunc                 func(int, nvml.GpmSample) nvml.Return
	GetComputeRunningProcessesFunc      func() ([]nvml.ProcessInfo, nvml.Return)
}

func (d *fakeDevice) GetUUID() (string, nvml.Return)            { return d.GetUUIDFunc() }
func (d *fakeDevice) GetName() (string, nvml.Return)            { return d.GetNameFunc() }
func (d *fakeDevice) GetPciInfo() (nvml.PciInfo, nvml.Return)   { return d.GetPciInfoFunc() }
func (d *fakeDevice) GetMemoryInfo() (nvml.Memory, nvml.Return) { return d.GetMemoryInfoFunc() }
func (d *fakeDevice) GetMemoryInfoV2() (nvml.MemoryV2, nvml.Return) {
	return d.GetMemoryInfoV2Func()
}

func (d *fakeDevice) GetEnforcedPowerLimit() (uint32, nvml.Return) {
	return d.GetEnforcedPowerLimitFunc()
}

func (d *fakeDevice) GetMaxPcieLinkGeneration() (int, nvml.Return) {
	return d.GetMaxPcieLinkGenerationFunc()
}
func (d *fakeDevice) GetMaxPcieLinkWidth() (int, nvml.Return)  { return d.GetMaxPcieLinkWidthFunc() }
func (d *fakeDevice) GetMigMode() (int, int, nvml.Return)      { return d.GetMigModeFunc() }
func (d *fakeDevice) GetMaxMigDeviceCount() (int, nvml.Return) { return d.GetMaxMigDeviceCountFunc() }
func (d *fakeDevice) GetMigDeviceHandleByIndex(a int) (nvml.Device, nvml.Return) {
	return d.GetMigDeviceHandleByIndexFunc(a)
}
func (d *fakeDevice) GetGpuInstanceID() (int, nvml.Return)     { return d.GetGpuInstanceIDFunc() }
func (d *fakeDevice) GetComputeInstanceID() (int, nvml.Return) { return d.GetComputeInstanceIDFunc() }
func (d *fakeDevice) GetAttributes() (nvml.DeviceAttributes, nvml.Return) {
	return d.GetAttributesFunc()
}

func (d *fakeDevice) GetTotalEnergyConsumption() (uint64, nvml.Return) {
	return d.GetTotalEnergyConsumptionFunc()
}
func (d *fakeDevice) GetFieldValues(a []nvml.FieldValue) nvml.Return { return d.GetFieldValuesFunc(a) }
func (d *fakeDevice) GetPowerUsage() (uint32, nvml.Return)           { return d.GetPowerUsageFunc() }
func (d *fakeDevice) GetUtilizationRates() (nvml.Utilization, nvml.Return) {
	return d.GetUtilizationRatesFunc()
}

func (d *fakeDevice) GetCurrentClocksThrottleReasons() (uint64, nvml.Return) {
	return d.GetCurrentClocksThrottleReasonsFunc()
}

func (d *fakeDevice) GetClockInfo(a nvml.ClockType) (uint32, nvml.Return) {
	return d.GetClockInfoFunc(a)
}
func (d *fakeDevice) GetTemperature() (uint32, nvml.Return) { return d.GetTemperatureFunc() }
func (d *fakeDevice) GetEncoderUtilization() (uint32, nvml.Return) {
	return d.GetEncoderUtilizationFunc()
}

func (d *fakeDevice) GetDecoderUtilization() (uint32, nvml.Return) {
	return d.GetDecoderUtilizationFunc()
}

func (d *fakeDevice) GetTotalEccErrors(a nvml.MemoryErrorType) (uint64, nvml.Return) {
	return d.GetTotalEccErrorsFunc(a)
}
func (d *fakeDevice) GetPcieReplayCounter() (int, nvml.Return) { return d.GetPcieReplayCounterFunc() }
func (d *fakeDevice) GetRemappedRows() (int, int, bool, bool, nvml.Return) {
	return d.GetRemappedRowsFunc()
}

func (d *fakeDevice) GetRetiredPages(a nvml.PageRetirementCause) (int, nvml.Return) {
	return d.GetRetiredPagesFunc(a)
}

func (d *fakeDevice) RegisterEvents(a uint64, b nvml.EventSet) nvml.Return {
	return d.RegisterEventsFunc(a, b)
}

func (d *fakeDevice) GpmQueryDeviceSupport() (nvml.GpmSupport, nvml.Return) {
	return d.GpmQueryDeviceSupportFunc()
}
func (d *fakeDevice) GpmSampleGet(a nvml.GpmSample) nvml.Return { return d.GpmSampleGetFunc(a) }
func (d *fakeDevice) GpmMigSampleGet(a int, b nvml.GpmSample) nvml.Return {
	return d.GpmMigSampleGetFunc(a, b)
}

func (d *fakeDevice) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return d.GetComputeRunningProcessesFunc()
}
