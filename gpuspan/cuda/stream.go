// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
)

// Handles with a meaning of their own (cuda.h).
const (
	streamNull      = 0
	streamLegacy    = 1
	streamPerThread = 2
)

// StreamInfo resolves the device and the context of a stream. For the legacy stream that is the calling OS thread's current
// context, else the primary context of device 0 (gpuspan asks on its polling thread, which has none). A stream that
// captures is refused, and its capture lives on.
func (b *Backend) StreamInfo(s backend.StreamHandle) (int, backend.StreamKind, error) {
	if b.err != nil {
		return 0, backend.StreamExplicit, b.err
	}
	switch s {
	case streamPerThread:
		return 0, backend.StreamPerThread, nil
	case streamNull, streamLegacy:
		d, err := b.legacy()
		return d, backend.StreamLegacy, err
	}
	// The capture check is the only question that leaves a capture whole; the one for the context would destroy it.
	if on, st := b.Capturing(s); st == backend.StatusOK && on {
		return 0, backend.StreamExplicit, fmt.Errorf("cannot time stream %#x: it captures a graph just now (register streams before)", uintptr(s))
	}
	ctx, err := b.driver.StreamContext(driver.Stream(s))
	if err != nil {
		return 0, backend.StreamExplicit, fmt.Errorf("cannot find the context of stream %#x: %w", uintptr(s), err)
	}
	d, err := b.adopt(ctx)
	if err != nil {
		return 0, backend.StreamExplicit, fmt.Errorf("cannot time stream %#x: %w", uintptr(s), err)
	}
	return d, backend.StreamExplicit, nil
}

func (b *Backend) legacy() (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, err := b.driver.Current()
	if err != nil {
		return 0, err
	}
	if ctx != 0 {
		return b.adopt(ctx)
	}
	_, st := b.context(0)
	if st != backend.StatusOK {
		return 0, fmt.Errorf("cannot retain the primary context of device 0: CUDA error %d", st)
	}
	return 0, nil
}

// context is the device's context; where no stream has decided it, it becomes the primary one.
func (b *Backend) context(ordinal int) (driver.Context, backend.Status) {
	if ordinal < 0 || ordinal >= len(b.devices) {
		return 0, backend.StatusInvalidValue
	}
	d := &b.devices[ordinal]
	if ctx := d.context.Load(); ctx != 0 {
		return driver.Context(ctx), backend.StatusOK
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx := d.context.Load(); ctx != 0 {
		return driver.Context(ctx), backend.StatusOK
	}
	ctx, err := b.driver.RetainPrimary(d.handle)
	if err != nil {
		return 0, status(err)
	}
	d.retained = true
	d.context.Store(uintptr(ctx))
	return ctx, backend.StatusOK
}

// keepContext sees to it that the calling thread, the polling thread, has a living context, of any device: events of all
// devices may be asked for under it. It returns whether it changed something, for a retry; the context that
// the events in question belong to may itself be the destroyed one.
func (b *Backend) keepContext() (changed bool) {
	current, err := b.driver.Current()
	if err != nil {
		return false
	}
	if current != 0 {
		if pop, code := b.driver.Push(current); code == 0 {
			pop()
			return false
		}
		b.driver.Pop() // a destroyed one
	}
	for i := range b.devices {
		if ctx := b.devices[i].context.Load(); ctx != 0 {
			if _, code := b.driver.Push(driver.Context(ctx)); code == 0 {
				return true
			}
		}
	}
	return false
}

// adopt makes ctx the context of its device, or refuses when the device has another. A primary context is retained, so that
// it lives as long as the backend.
func (b *Backend) adopt(ctx driver.Context) (int, error) {
	handle, err := b.driver.ContextDevice(ctx)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.devices {
		d := &b.devices[i]
		if d.handle != handle {
			continue
		}
		switch old := driver.Context(d.context.Load()); {
		case old == ctx:
			return i, nil
		case old == 0 || b.driver.Do(old, func() error { return nil }) != nil: // never decided, or destroyed since
			d.retained, err = b.retain(handle, ctx)
			if err != nil {
				return 0, err
			}
			d.context.Store(uintptr(ctx))
			return i, nil
		}
		return 0, fmt.Errorf("its context is not the one that earlier streams of device %d use (one context per device is supported)", i)
	}
	return 0, fmt.Errorf("its device %d is not among those that the driver lists", handle)
}

// retain takes a reference if ctx is the device's primary context.
func (b *Backend) retain(dev driver.Device, ctx driver.Context) (bool, error) {
	active, err := b.driver.PrimaryActive(dev)
	if err != nil || !active {
		return false, err // retaining an inactive primary context would make one, hundreds of megabytes large
	}
	primary, err := b.driver.RetainPrimary(dev)
	if err != nil {
		return false, err
	}
	if primary != ctx {
		return false, b.driver.ReleasePrimary(dev)
	}
	return true, nil
}

func status(err error) backend.Status {
	var e *driver.Error
	if errors.As(err, &e) {
		return backend.Status(e.Code)
	}
	return backend.StatusInvalidValue
}
