// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
	"github.com/otelgpu/otelgpu/semconv"
)

var _ backend.Backend = (*Backend)(nil)

// Backend is gpuspan's view of HIP.
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

// Open loads and initialises HIP. Without the library, with one that is too old or without a device it fails and says
// which of these it is. The Backend is not nil even then: it finds no devices, so that gpuspan.New accepts it, repeats
// the error and times with the host's clock.
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
	for _, o := range opts {
		o.apply(&c)
	}
	lib, err := dl.Find(c.library, EnvLibrary, places)
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
		return nil, fmt.Errorf("cannot initialise HIP %s: %w", lib.Path, err)
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

// Name is "hip_event".
func (b *Backend) Name() string { return semconv.GPUTimingSourceHipEvent }

// ThreadInit switches the calling OS thread, which must be locked, to relaxed capture mode.
func (b *Backend) ThreadInit() error {
	if b.err != nil {
		return b.err
	}
	return b.Relax("HIP")
}

// Bind makes a device current on the calling OS thread, which must be locked, until unbind is called.
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

// Current is the calling OS thread's current device.
func (b *Backend) Current() (backend.Context, backend.Status) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = f.Addr(0)
	st := backend.Status(f.Call(b.fn.Of["hipGetDevice"], 1))
	return backend.Context(f.Int32(0)), st
}

// StreamInfo is the device of a stream, for the NULL stream the one that was current where it was registered.
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
	f.Args[0], f.Args[1] = uintptr(s), f.Addr(0)
	if err := b.fn.Frame("hipStreamGetDevice", f, 2); err != nil {
		return backend.StreamInfo{}, fmt.Errorf("cannot find the device of stream %#x: %w", uintptr(s), err)
	}
	d := int(f.Int32(0))
	if d < 0 || d >= len(b.devices) {
		return backend.StreamInfo{}, fmt.Errorf("cannot time stream %#x: its device %d is not among the %d visible ones",
			uintptr(s), d, len(b.devices))
	}
	return backend.StreamInfo{Device: d, Context: backend.Context(d)}, nil
}

// disableSystemFence is hipEventDisableSystemFence.
const disableSystemFence = 0x20000000

// NewEvents fills dst with timing events; all or none.
func (b *Backend) NewEvents(c backend.Context, dst []backend.Event) backend.Status {
	return b.CreateEvents(c, dst, disableSystemFence)
}

// Close has nothing to give back: events and streams are freed by who made them.
func (b *Backend) Close() error { return nil }
