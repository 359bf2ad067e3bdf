// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvml

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is the one of the driver. It is loaded by Init and stays loaded: other code of the process may use it too.
type library struct {
	path   string
	mu     sync.Mutex
	handle uintptr
	known  map[string]uintptr // 0: the driver lacks it
}

// New is the library at a path, or the loader's where it is empty.
func New(path string) Interface {
	if path == "" {
		path = "libnvidia-ml.so.1"
	}
	return &library{path: path, known: map[string]uintptr{}}
}

// symbol is the address of a function, 0 where there is none. The loader keeps the reason of a failure for the thread,
// so both of purego's calls are made on one.
func (l *library) symbol(name string) uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn, ok := l.known[name]
	if !ok && l.handle != 0 {
		runtime.LockOSThread()
		fn, _ = purego.Dlsym(l.handle, name)
		runtime.UnlockOSThread()
		l.known[name] = fn
	}
	return fn
}

// Has reports whether the driver has a function.
func (l *library) Has(symbol string) bool { return l.symbol(symbol) != 0 }

// call calls a function. Memory whose address is converted in the list of arguments stays where it is until it returns.
//
//go:uintptrescapes
func (l *library) call(name string, args ...uintptr) Return {
	fn := l.symbol(name)
	if fn == 0 {
		return ErrorFunctionNotFound
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return Return(uint32(r))
}

func (l *library) Init() Return {
	l.mu.Lock()
	if l.handle == 0 {
		runtime.LockOSThread()
		handle, err := purego.Dlopen(l.path, purego.RTLD_LAZY|purego.RTLD_LOCAL)
		runtime.UnlockOSThread()
		if err != nil {
			l.mu.Unlock()
			return ErrorLibraryNotFound
		}
		l.handle = handle
	}
	l.mu.Unlock()
	return l.call("nvmlInit_v2")
}

func (l *library) Shutdown() Return { return l.call("nvmlShutdown") }

func (l *library) ErrorString(r Return) string {
	if fn := l.symbol("nvmlErrorString"); fn != 0 {
		if p, _, _ := purego.SyscallN(fn, uintptr(r)); p != 0 {
			return text(p)
		}
	}
	return fmt.Sprintf("NVML error %d", r)
}

// text copies a text of the library.
func text(p uintptr) string {
	const most = 256
	b := unsafe.Slice(*(**byte)(unsafe.Pointer(&p)), most)
	for n := range b {
		if b[n] == 0 {
			return string(b[:n])
		}
	}
	return string(b)
}

// Text is a C text in a buffer.
func Text(b []byte) string {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return string(b)
}

func (l *library) SystemGetDriverVersion() (string, Return) {
	var b [80]byte
	ret := l.call("nvmlSystemGetDriverVersion", uintptr(unsafe.Pointer(&b)), uintptr(len(b)))
	return Text(b[:]), ret
}

func (l *library) DeviceGetCount() (int, Return) {
	var n uint32
	ret := l.call("nvmlDeviceGetCount_v2", uintptr(unsafe.Pointer(&n)))
	return int(n), ret
}

func (l *library) DeviceGetHandleByIndex(i int) (Device, Return) {
	d := device{lib: l}
	ret := l.call("nvmlDeviceGetHandleByIndex_v2", uintptr(i), uintptr(unsafe.Pointer(&d.handle)))
	return d, ret
}

func (l *library) EventSetCreate() (EventSet, Return) {
	var set EventSet
	ret := l.call("nvmlEventSetCreate", uintptr(unsafe.Pointer(&set)))
	return set, ret
}

func (l *library) EventSetWait(set EventSet, ms uint32) (EventData, Return) {
	var data struct { // nvmlEventData_t
		device                       uintptr
		eventType, data              uint64
		gpuInstance, computeInstance uint32
	}
	ret := l.call("nvmlEventSetWait_v2", uintptr(set), uintptr(unsafe.Pointer(&data)), uintptr(ms))
	e := EventData{EventType: data.eventType, EventData: data.data}
	if data.device != 0 {
		e.Device = device{l, data.device}
	}
	return e, ret
}

func (l *library) EventSetFree(set EventSet) Return { return l.call("nvmlEventSetFree", uintptr(set)) }

func (l *library) GpmSampleAlloc() (GpmSample, Return) {
	var s GpmSample
	ret := l.call("nvmlGpmSampleAlloc", uintptr(unsafe.Pointer(&s)))
	return s, ret
}

func (l *library) GpmSampleFree(s GpmSample) Return { return l.call("nvmlGpmSampleFree", uintptr(s)) }

func (l *library) GpmMetricsGet(g *GpmMetricsGetType) Return {
	g.Version = 1
	return l.call("nvmlGpmMetricsGet", uintptr(unsafe.Pointer(g)))
}

// device is nvmlDevice_t.
type device struct {
	lib    *library
	handle uintptr
}

// number calls a function that writes one number of 32 bits.
func (d device) number(name string) (uint32, Return) {
	var v uint32
	ret := d.lib.call(name, d.handle, uintptr(unsafe.Pointer(&v)))
	return v, ret
}

func (d device) integer(name string) (int, Return) {
	v, ret := d.number(name)
	return int(v), ret
}

func (d device) long(name string) (uint64, Return) {
	var v uint64
	ret := d.lib.call(name, d.handle, uintptr(unsafe.Pointer(&v)))
	return v, ret
}

func (d device) text(name string) (string, Return) {
	var b [96]byte
	ret := d.lib.call(name, d.handle, uintptr(unsafe.Pointer(&b)), uintptr(len(b)))
	return Text(b[:]), ret
}

func (d device) GetUUID() (string, Return) { return d.text("nvmlDeviceGetUUID") }
func (d device) GetName() (string, Return) { return d.text("nvmlDeviceGetName") }
func (d device) GetEnforcedPowerLimit() (uint32, Return) {
	return d.number("nvmlDeviceGetEnforcedPowerLimit")
}

func (d device) GetMaxPcieLinkGeneration() (int, Return) {
	return d.integer("nvmlDeviceGetMaxPcieLinkGeneration")
}

func (d device) GetMaxPcieLinkWidth() (int, Return) {
	return d.integer("nvmlDeviceGetMaxPcieLinkWidth")
}

func (d device) GetMaxMigDeviceCount() (int, Return) {
	return d.integer("nvmlDeviceGetMaxMigDeviceCount")
}
func (d device) GetGpuInstanceID() (int, Return) { return d.integer("nvmlDeviceGetGpuInstanceId") }
func (d device) GetComputeInstanceID() (int, Return) {
	return d.integer("nvmlDeviceGetComputeInstanceId")
}
func (d device) GetPowerUsage() (uint32, Return) { return d.number("nvmlDeviceGetPowerUsage") }
func (d device) GetPcieReplayCounter() (int, Return) {
	return d.integer("nvmlDeviceGetPcieReplayCounter")
}

func (d device) GetTotalEnergyConsumption() (uint64, Return) {
	return d.long("nvmlDeviceGetTotalEnergyConsumption")
}

func (d device) GetCurrentClocksThrottleReasons() (uint64, Return) {
	return d.long("nvmlDeviceGetCurrentClocksThrottleReasons")
}

func (d device) GetPciInfo() (p PciInfo, ret Return) {
	ret = d.lib.call("nvmlDeviceGetPciInfo_v3", d.handle, uintptr(unsafe.Pointer(&p)))
	return p, ret
}

func (d device) GetMemoryInfo() (m Memory, ret Return) {
	ret = d.lib.call("nvmlDeviceGetMemoryInfo", d.handle, uintptr(unsafe.Pointer(&m)))
	return m, ret
}

func (d device) GetMemoryInfoV2() (m MemoryV2, ret Return) {
	m.Version = uint32(unsafe.Sizeof(m)) | 2<<24
	ret = d.lib.call("nvmlDeviceGetMemoryInfo_v2", d.handle, uintptr(unsafe.Pointer(&m)))
	return m, ret
}

func (d device) GetMigMode() (current, pending int, ret Return) {
	var c, p uint32
	ret = d.lib.call("nvmlDeviceGetMigMode", d.handle, uintptr(unsafe.Pointer(&c)), uintptr(unsafe.Pointer(&p)))
	return int(c), int(p), ret
}

func (d device) GetMigDeviceHandleByIndex(i int) (Device, Return) {
	mig := device{lib: d.lib}
	ret := d.lib.call("nvmlDeviceGetMigDeviceHandleByIndex", d.handle, uintptr(i), uintptr(unsafe.Pointer(&mig.handle)))
	return mig, ret
}

func (d device) GetAttributes() (a DeviceAttributes, ret Return) {
	ret = d.lib.call("nvmlDeviceGetAttributes_v2", d.handle, uintptr(unsafe.Pointer(&a)))
	return a, ret
}

func (d device) GetFieldValues(v []FieldValue) Return {
	return d.lib.call("nvmlDeviceGetFieldValues", d.handle, uintptr(len(v)), uintptr(unsafe.Pointer(&v[0])))
}

func (d device) GetUtilizationRates() (u Utilization, ret Return) {
	ret = d.lib.call("nvmlDeviceGetUtilizationRates", d.handle, uintptr(unsafe.Pointer(&u)))
	return u, ret
}

func (d device) GetClockInfo(kind ClockType) (mhz uint32, ret Return) {
	ret = d.lib.call("nvmlDeviceGetClockInfo", d.handle, uintptr(kind), uintptr(unsafe.Pointer(&mhz)))
	return mhz, ret
}

func (d device) GetTemperature() (celsius uint32, ret Return) {
	const gpu = 0 // NVML_TEMPERATURE_GPU
	ret = d.lib.call("nvmlDeviceGetTemperature", d.handle, gpu, uintptr(unsafe.Pointer(&celsius)))
	return celsius, ret
}

func (d device) coder(name string) (uint32, Return) {
	var percent, period uint32
	ret := d.lib.call(name, d.handle, uintptr(unsafe.Pointer(&percent)), uintptr(unsafe.Pointer(&period)))
	return percent, ret
}

func (d device) GetEncoderUtilization() (uint32, Return) {
	return d.coder("nvmlDeviceGetEncoderUtilization")
}

func (d device) GetDecoderUtilization() (uint32, Return) {
	return d.coder("nvmlDeviceGetDecoderUtilization")
}

func (d device) GetTotalEccErrors(kind MemoryErrorType) (n uint64, ret Return) {
	const volatile = 0 // NVML_VOLATILE_ECC
	ret = d.lib.call("nvmlDeviceGetTotalEccErrors", d.handle, uintptr(kind), volatile, uintptr(unsafe.Pointer(&n)))
	return n, ret
}

func (d device) GetRemappedRows() (corrected, uncorrected int, pending, failed bool, ret Return) {
	var c, u, p, f uint32
	ret = d.lib.call("nvmlDeviceGetRemappedRows", d.handle, uintptr(unsafe.Pointer(&c)), uintptr(unsafe.Pointer(&u)),
		uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&f)))
	return int(c), int(u), p == 1, f == 1, ret
}

// GetRetiredPages is the number of pages. Asked for none, the library says how many there are and that they do not fit.
func (d device) GetRetiredPages(cause PageRetirementCause) (int, Return) {
	var n uint32
	ret := d.lib.call("nvmlDeviceGetRetiredPages", d.handle, uintptr(cause), uintptr(unsafe.Pointer(&n)), 0)
	if ret == ErrorInsufficientSize {
		ret = Success
	}
	return int(n), ret
}

func (d device) RegisterEvents(types uint64, set EventSet) Return {
	return d.lib.call("nvmlDeviceRegisterEvents", d.handle, uintptr(types), uintptr(set))
}

func (d device) GpmQueryDeviceSupport() (s GpmSupport, ret Return) {
	s.Version = 1
	ret = d.lib.call("nvmlGpmQueryDeviceSupport", d.handle, uintptr(unsafe.Pointer(&s)))
	return s, ret
}

func (d device) GpmSampleGet(s GpmSample) Return {
	return d.lib.call("nvmlGpmSampleGet", d.handle, uintptr(s))
}

func (d device) GpmMigSampleGet(instance int, s GpmSample) Return {
	return d.lib.call("nvmlGpmMigSampleGet", d.handle, uintptr(instance), uintptr(s))
}

// GetComputeRunningProcesses takes the third version of the function, or the second, whose structure is the same.
// Processes that start between two calls make the list longer than was said.
func (d device) GetComputeRunningProcesses() ([]ProcessInfo, Return) {
	name := "nvmlDeviceGetComputeRunningProcesses_v3"
	if !d.lib.Has(name) {
		name = "nvmlDeviceGetComputeRunningProcesses_v2"
	}
	for n := uint32(16); ; n *= 2 {
		list, count := make([]ProcessInfo, n), n
		ret := d.lib.call(name, d.handle, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&list[0])))
		const most = 1 << 16
		if ret != ErrorInsufficientSize || n >= most {
			return list[:min(count, n)], ret
		}
	}
}
