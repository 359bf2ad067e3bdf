// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/semconv"
)

var _ backend.Backend = (*Backend)(nil)

// Backend implements backend.Backend with the CUDA driver.
type Backend struct {
	eventapi.API
	driver  *driver.Driver
	devices []device
	err     error // of Open

	mu    sync.Mutex       // of the devices' contexts while they are decided, and of known
	known []driver.Context // contexts of streams

	closed bool
}

// device is a GPU with the context that the library uses on it for itself: the context of its first
// stream.
type device struct {
	handle   driver.Device
	context  atomic.Uintptr // 0 until a stream decides it
	retained bool           // by us: a primary context
}

// names are the driver's symbols. `_v2` if the header uses it; the elapsed time has a `_v2` from
// CUDA 12.8 on.
var names = eventapi.Names{
	eventapi.EventCreate:               {"cuEventCreate"},
	eventapi.EventDestroy:              {"cuEventDestroy_v2"},
	eventapi.EventRecord:               {"cuEventRecord"},
	eventapi.EventQuery:                {"cuEventQuery"},
	eventapi.EventSynchronize:          {"cuEventSynchronize"},
	eventapi.EventElapsed:              {"cuEventElapsedTime_v2", "cuEventElapsedTime"},
	eventapi.StreamIsCapturing:         {"cuStreamIsCapturing"},
	eventapi.ThreadExchangeCaptureMode: {"cuThreadExchangeStreamCaptureMode"},
	eventapi.StreamCreateWithPriority:  {"cuStreamCreateWithPriority"},
	eventapi.StreamDestroy:             {"cuStreamDestroy_v2"},
	eventapi.StreamPriorityRange:       {"cuCtxGetStreamPriorityRange"},
	eventapi.MemGetInfo:                {"cuMemGetInfo_v2"},
}

// Open loads and initializes the driver. It does not create a context. It returns an error if there
// is no driver, the driver is too old, or there is no device. The Backend is not nil even then: it
// has no devices, and gpuspan.New returns the same error and times with the host's clock.
func Open(opts ...Option) (*Backend, error) {
	b, err := open(opts)
	if err != nil {
		return &Backend{err: err}, err
	}
	return b, nil
}

func open(opts []Option) (*Backend, error) {
	var c config
	options.All(opts, Option.apply)(&c)
	drv, err := driver.Open(c.library)
	if err != nil {
		return nil, err
	}
	lib, err := dl.Open(drv.Path())
	if err != nil {
		return nil, fmt.Errorf("cannot load the CUDA driver: %w", err)
	}
	symbols := lib.Symbols()
	b := &Backend{driver: drv}
	b.API = eventapi.New(symbols, names, b.Bind)
	if err := symbols.Err(); err != nil {
		return nil, fmt.Errorf("cannot use the CUDA driver: %w", err)
	}
	n, err := drv.DeviceCount()
	if err != nil {
		return nil, fmt.Errorf("cannot list the CUDA devices: %w", err)
	}
	if n == 0 {
		return nil, errors.New("cannot use the CUDA driver: no device is visible (see CUDA_VISIBLE_DEVICES)")
	}
	b.devices = make([]device, n)
	for i := range b.devices {
		if b.devices[i].handle, err = drv.Device(i); err != nil {
			return nil, fmt.Errorf("cannot open CUDA device %d: %w", i, err)
		}
	}
	return b, nil
}

// Name returns "cuda_event".
func (b *Backend) Name() string { return semconv.GPUTimingSourceCUDAEvent }

// Driver returns the underlying driver, for programs that have no other binding; nil after an error
// of Open.
func (b *Backend) Driver() *driver.Driver { return b.driver }

// ThreadInit switches the calling OS thread, which must be locked, to relaxed capture mode.
func (b *Backend) ThreadInit() error {
	if b.err != nil {
		return b.err
	}
	return b.Relax("CUDA")
}

// Bind makes a context current on the calling OS thread, which must be locked to the goroutine,
// until unbind is called.
func (b *Backend) Bind(c backend.Context) (unbind func(), st backend.Status) {
	ctx, st := b.context(c)
	if st != backend.StatusOK {
		return func() {}, st
	}
	unbind, code := b.driver.Push(ctx)
	return unbind, backend.Status(code)
}

// Current returns the calling OS thread's current context.
func (b *Backend) Current() (backend.Context, backend.Status) {
	ctx, err := b.driver.Current()
	switch {
	case err != nil:
		return 0, status(err)
	case ctx == 0:
		return 0, backend.StatusInvalidContext
	}
	return backend.Context(ctx), backend.StatusOK
}

// NewStream creates a non-blocking stream of the highest priority. If the calling thread, which is
// the polling thread, has no current context, the device's context becomes current on it, because
// cuEventElapsedTime may fail without one.
func (b *Backend) NewStream(c backend.Context) (s backend.StreamHandle, st backend.Status) {
	if s, st = b.API.NewStream(c); st == backend.StatusOK {
		b.keepContext()
	}
	return s, st
}

// NewAnchorStream is like NewStream, because in CUDA each event has its own time.
func (b *Backend) NewAnchorStream(c backend.Context) (backend.StreamHandle, backend.Status) {
	return b.NewStream(c)
}

// NewEvents fills dst with timing events: all of them, or none.
func (b *Backend) NewEvents(c backend.Context, dst []backend.Event) backend.Status {
	return b.CreateEvents(c, dst, 0)
}

// FreeEvents destroys events that were created together, unless their context was destroyed, and
// they with it.
func (b *Backend) FreeEvents(c backend.Context, events []backend.Event) {
	b.keepContext() // otherwise the driver would not distinguish the two
	b.API.FreeEvents(c, events)
}

// Query returns StatusOK if an event has completed or was never recorded, otherwise StatusNotReady
// or the driver's error.
func (b *Backend) Query(e backend.Event) backend.Status {
	st := b.API.Query(e)
	if lostContext(st) && b.keepContext() {
		st = b.API.Query(e)
	}
	return st
}

// Elapsed returns the time between two events in nanoseconds; the driver reports float32
// milliseconds.
func (b *Backend) Elapsed(from, to backend.Event) (float64, backend.Status) {
	d, st := b.API.Elapsed(from, to)
	if lostContext(st) && b.keepContext() {
		d, st = b.API.Elapsed(from, to)
	}
	return d, st
}

func lostContext(st backend.Status) bool {
	return st == backend.StatusInvalidContext || st == backend.StatusContextDestroyed
}

// Close releases the references to primary contexts, and returns the driver's errors.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known, b.closed = nil, true
	var errs []error
	for i := range b.devices {
		d := &b.devices[i]
		d.context.Store(0)
		if d.retained {
			d.retained = false
			errs = append(errs, b.driver.ReleasePrimary(d.handle))
		}
	}
	return errors.Join(errs...)
}

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct{ library string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary sets the path of libcuda. It precedes the environment variable GPUSPAN_CUDA_LIBRARY
// and the usual paths; the empty string means those.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }

// procVersion is where NVIDIA's kernel module states its version. WSL has no such file.
const procVersion = "/proc/driver/nvidia/version"

// Devices lists the GPUs that the process sees, in the driver's order. Properties that the driver
// does not report are empty; it returns an error only if a device has no name.
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
