// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/semconv"
)

var _ backend.Backend = (*Backend)(nil)

// Backend implements backend.Backend with HIP.
type Backend struct {
	eventapi.API
	fn      eventapi.Functions
	devices []device
	err     error    // of Open
	restore []func() // restore[d] makes d the current device; kept, so that Bind does not allocate
}

// device is a GPU with its anchor stream.
type device struct {
	anchor  atomic.Uintptr // stream
	scratch atomic.Uintptr // four bytes that are set between anchors
}

// Open loads and initializes HIP. It returns an error if there is no library, the library is too
// old, or there is no device. The Backend is not nil even then: it has no devices, and gpuspan.New
// returns the same error and times with the host's clock.
func Open(opts ...Option) (*Backend, error) {
	b, err := open(opts)
	if err != nil {
		return &Backend{err: err}, err
	}
	return b, nil
}

func open(opts []Option) (*Backend, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("cannot use HIP on %s (only Linux is supported)", runtime.GOOS)
	}
	var c config
	options.All(opts, Option.apply)(&c)
	lib, err := dl.Find(c.library, EnvLibrary, paths)
	if err != nil {
		return nil, fmt.Errorf("cannot load HIP (install ROCm, or name libamdhip64 in %s): %w", EnvLibrary, err)
	}
	symbols := lib.Symbols()
	b := &Backend{}
	b.API, b.fn = eventapi.New(symbols, names, b.Bind), resolve(lib, symbols)
	if err := symbols.Err(); err != nil {
		return nil, fmt.Errorf("cannot use HIP: %w", err)
	}
	if err := b.fn.Call("hipInit", 0); err != nil {
		return nil, fmt.Errorf("cannot initialize HIP %s: %w", lib.Path, err)
	}
	count, err := b.fn.Value("hipGetDeviceCount")
	if err != nil {
		return nil, fmt.Errorf("cannot list the HIP devices: %w", err)
	}
	n := int(int32(count))
	if n == 0 {
		return nil, errors.New("cannot use HIP: no device is visible (see HIP_VISIBLE_DEVICES)")
	}
	b.devices = make([]device, n)
	for d := range n {
		b.restore = append(b.restore, func() { b.fn.Of["hipSetDevice"].Call(uintptr(d)) })
	}
	return b, nil
}

// Name returns "hip_event".
func (b *Backend) Name() string { return semconv.GPUTimingSourceHipEvent }

// ThreadInit switches the calling OS thread, which must be locked, to relaxed capture mode.
func (b *Backend) ThreadInit() error {
	if b.err != nil {
		return b.err
	}
	return b.Relax("HIP")
}

// Bind makes a device current on the calling OS thread, which must be locked to the goroutine,
// until unbind is called.
func (b *Backend) Bind(c backend.Context) (unbind func(), st backend.Status) {
	if uintptr(c) >= uintptr(len(b.devices)) {
		return func() {}, backend.StatusInvalidValue
	}
	current, st := b.Current()
	if st == backend.StatusOK {
		st = backend.Status(b.fn.Of["hipSetDevice"].Call(uintptr(c)))
	}
	if st != backend.StatusOK || uintptr(current) >= uintptr(len(b.restore)) {
		return func() {}, st
	}
	return b.restore[current], st
}

// Current returns the calling OS thread's current device.
func (b *Backend) Current() (backend.Context, backend.Status) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = f.Addr(0)
	st := backend.Status(f.Call(b.fn.Of["hipGetDevice"], 1))
	return backend.Context(f.Int32(0)), st
}

// StreamInfo returns the device of a stream; for the NULL stream the device that was current when
// it was registered. It returns an error for an invalid handle and for a capturing stream.
func (b *Backend) StreamInfo(s backend.StreamHandle, current backend.Context) (backend.StreamInfo, error) {
	if b.err != nil {
		return backend.StreamInfo{}, b.err
	}
	switch s {
	case 0, 1: // NULL and hipStreamLegacy
		return backend.StreamInfo{Device: int(current), Context: current, Kind: backend.StreamLegacy}, nil
	case 2: // hipStreamPerThread
		return backend.StreamInfo{Kind: backend.StreamPerThread}, nil
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = s, f.Addr(0)
	if err := b.fn.Frame("hipStreamGetDevice", f, 2); err != nil {
		return backend.StreamInfo{}, fmt.Errorf("cannot find the device of stream %#x: %w", s, err)
	}
	d := int(f.Int32(0))
	if d < 0 || d >= len(b.devices) {
		return backend.StreamInfo{}, fmt.Errorf("cannot time stream %#x: its device %d is not among the %d visible ones",
			s, d, len(b.devices))
	}
	return backend.StreamInfo{Device: d, Context: backend.Context(d)}, nil
}

// disableSystemFence is hipEventDisableSystemFence.
const disableSystemFence = 0x20000000

// NewEvents fills dst with timing events: all of them, or none.
func (b *Backend) NewEvents(c backend.Context, dst []backend.Event) backend.Status {
	return b.CreateEvents(c, dst, disableSystemFence)
}

// Close does nothing, because events and streams are freed by their owners.
func (b *Backend) Close() error { return nil }

// statusCaptureUnsupported is hipErrorStreamCaptureUnsupported.
const statusCaptureUnsupported = 900

// NewAnchorStream creates the stream for clock anchors of a device, and allocates four bytes that
// are set before each of its records.
func (b *Backend) NewAnchorStream(c backend.Context) (s backend.StreamHandle, st backend.Status) {
	if s, st = b.NewStream(c); st != backend.StatusOK {
		return 0, st
	}
	st = b.In(c, func() backend.Status {
		f := dl.NewFrame()
		defer f.Free()
		f.Args[0], f.Args[1] = f.Addr(0), 4
		st := backend.Status(f.Call(b.fn.Of["hipMalloc"], 2))
		if st == backend.StatusOK {
			if old := b.devices[c].scratch.Swap(uintptr(f.Out[0])); old != 0 {
				b.fn.Of["hipFree"].Call(old)
			}
			b.devices[c].anchor.Store(s)
		}
		return st
	})
	if st != backend.StatusOK {
		b.API.FreeStream(c, s)
		return 0, st
	}
	return s, st
}

// FreeStream destroys a stream of NewStream or NewAnchorStream.
func (b *Backend) FreeStream(c backend.Context, s backend.StreamHandle) {
	b.API.FreeStream(c, s)
	if int(c) < len(b.devices) && b.devices[c].anchor.CompareAndSwap(s, 0) {
		b.fn.Of["hipFree"].Call(b.devices[c].scratch.Swap(0))
	}
}

// Record enqueues an event; on an anchor stream after a write, so that it has a separate marker.
func (b *Backend) Record(c *backend.Call) backend.Status {
	for i := range b.devices {
		d := &b.devices[i]
		if d.anchor.Load() != c.Args[1] || c.Args[1] == 0 {
			continue
		}
		f := dl.NewFrame()
		f.Args[0], f.Args[1], f.Args[2], f.Args[3] = d.scratch.Load(), 0, 4, c.Args[1]
		st := backend.Status(f.Call(b.fn.Of["hipMemsetAsync"], 4))
		f.Free()
		if st != backend.StatusOK {
			return st
		}
	}
	return b.API.Record(c)
}

// Query returns StatusOK if an event has completed, otherwise StatusNotReady, also if a capture on
// another stream forbids the query, or the error of HIP.
func (b *Backend) Query(e backend.Event) backend.Status {
	st := b.API.Query(e)
	if st == statusCaptureUnsupported {
		return backend.StatusNotReady
	}
	return st
}

// moduleVersion is the file in which AMD's out-of-tree kernel module states its version; the
// in-tree module has none.
const moduleVersion = "/sys/module/amdgpu/version"

// Devices lists the GPUs that the process sees. Properties that HIP does not report are empty; it
// returns an error only if a device has no name.
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

// uuid returns `GPU-` with the 16 characters that ROCm uses, or with hexadecimal bytes if they are
// not characters.
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
		return "" // ROCm's value for a device without a UUID
	case len(text) == len(u) && strings.Trim(text, "0123456789abcdefABCDEF") == "":
		return "GPU-" + text
	}
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

var names = eventapi.Names{
	eventapi.EventCreate:               {"hipEventCreateWithFlags"},
	eventapi.EventDestroy:              {"hipEventDestroy"},
	eventapi.EventRecord:               {"hipEventRecord"},
	eventapi.EventQuery:                {"hipEventQuery"},
	eventapi.EventSynchronize:          {"hipEventSynchronize"},
	eventapi.EventElapsed:              {"hipEventElapsedTime"},
	eventapi.StreamIsCapturing:         {"hipStreamIsCapturing"},
	eventapi.ThreadExchangeCaptureMode: {"hipThreadExchangeStreamCaptureMode"},
	eventapi.StreamCreateWithPriority:  {"hipStreamCreateWithPriority"},
	eventapi.StreamDestroy:             {"hipStreamDestroy"},
	eventapi.StreamPriorityRange:       {"hipDeviceGetStreamPriorityRange"},
	eventapi.MemGetInfo:                {"hipMemGetInfo"},
}

// functions are functions that only HIP has.
var functions = []string{
	"hipInit", "hipGetDeviceCount", "hipDeviceGetName", "hipDeviceGetPCIBusId", "hipDeviceTotalMem", "hipGetDevice",
	"hipSetDevice", "hipStreamGetDevice", "hipMalloc", "hipFree", "hipMemsetAsync",
}

// optional lists functions that some versions lack: ROCm 5.2 added hipDeviceGetUuid.
var optional = []string{"hipDeviceGetUuid", "hipGetErrorName", "hipGetErrorString"}

func resolve(l *dl.Library, s *dl.Symbols) eventapi.Functions {
	fn := eventapi.Functions{
		API: "HIP", Of: map[string]dl.Func{}, Name: "hipGetErrorName", Text: "hipGetErrorString",
		Says: func(describe dl.Func, code int32) string { return dl.String(describe.Pointer(uintptr(code))) },
	}
	for _, name := range functions {
		fn.Of[name] = s.Need(name)
	}
	for _, name := range optional {
		fn.Of[name] = l.Lookup(name)
	}
	return fn
}

// EnvLibrary names the environment variable with the path of libamdhip64.
const EnvLibrary = "GPUSPAN_HIP_LIBRARY"

// paths lists the paths of libamdhip64; the version in the name is ROCm's major version.
var paths = []string{
	"libamdhip64.so",
	"libamdhip64.so.7",
	"libamdhip64.so.6",
	"libamdhip64.so.5",
	"/opt/rocm/lib/libamdhip64.so",
}

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct{ library string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary sets the path of libamdhip64. It precedes the environment variable
// GPUSPAN_HIP_LIBRARY and the usual paths; the empty string means those.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }

// Error is a failed HIP call: Call, the function's name; Code, the hipError_t; Name and Text, the
// library's description. `hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected`.
type Error = eventapi.Error
