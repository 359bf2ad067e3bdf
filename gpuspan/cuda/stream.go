// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"errors"
	"fmt"
	"slices"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
)

// Handles with a special meaning (cuda.h).
const (
	streamNull      = 0
	streamLegacy    = 1
	streamPerThread = 2
)

// StreamInfo returns the device and the context of a stream. The legacy stream belongs to current.
// It returns an error for an invalid handle and for a capturing stream, whose capture stays valid.
func (b *Backend) StreamInfo(s backend.StreamHandle, current backend.Context) (backend.StreamInfo, error) {
	if b.err != nil {
		return backend.StreamInfo{}, b.err
	}
	kind := backend.StreamExplicit
	var ctx driver.Context
	switch s {
	case streamPerThread:
		return backend.StreamInfo{Kind: backend.StreamPerThread}, nil
	case streamNull, streamLegacy:
		kind, ctx = backend.StreamLegacy, driver.Context(current)
		if ctx == 0 {
			return backend.StreamInfo{Kind: kind}, errNoContext
		}
	default:
		// The capture check is the only query that does not destroy a capture; the one for the
		// context would.
		if on, st := b.Capturing(s); st == backend.StatusOK && on {
			return backend.StreamInfo{},
				fmt.Errorf("cannot time stream %#x: it is capturing a graph (register streams before captures)", s)
		}
		var err error
		if ctx, err = b.driver.StreamContext(driver.Stream(s)); err != nil {
			return backend.StreamInfo{}, fmt.Errorf("cannot find the context of stream %#x: %w", s, err)
		}
	}
	d, err := b.adopt(ctx)
	if err != nil {
		return backend.StreamInfo{Kind: kind}, fmt.Errorf("cannot time stream %#x: %w", s, err)
	}
	return backend.StreamInfo{Device: d, Context: backend.Context(ctx), Kind: kind}, nil
}

var errNoContext = errors.New("no context is current on the thread that registers the legacy stream " +
	"(register it on the locked OS thread that uses the device, or create a stream and use that)")

// context resolves a backend.Context: the driver's handle, or for an ordinal the device's context;
// if no stream has determined that one, it becomes the primary one.
func (b *Backend) context(c backend.Context) (driver.Context, backend.Status) {
	if uintptr(c) > maxOrdinal {
		return driver.Context(c), backend.StatusOK
	}
	if uintptr(c) >= uintptr(len(b.devices)) {
		return 0, backend.StatusInvalidValue
	}
	d := &b.devices[c]
	if ctx := d.context.Load(); ctx != 0 {
		return driver.Context(ctx), backend.StatusOK
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx := d.context.Load(); ctx != 0 {
		return driver.Context(ctx), backend.StatusOK
	}
	if b.closed { // nothing would release it
		return 0, backend.StatusDeinitialized
	}
	ctx, err := b.driver.RetainPrimary(d.handle)
	if err != nil {
		return 0, status(err)
	}
	d.retained = true
	d.context.Store(uintptr(ctx))
	return ctx, backend.StatusOK
}

// maxOrdinal is below every address, and above the ordinals of devices.
const maxOrdinal = 1<<12 - 1

// keepContext ensures that the calling thread, the polling thread, has a valid context, of any
// device: the events of all devices may be queried under it. It returns whether it changed
// something, for a retry; the context of the events in question may itself be the destroyed one.
func (b *Backend) keepContext() (changed bool) {
	current, err := b.driver.Current()
	if err != nil {
		return false
	}
	if current != 0 {
		if b.lives(current) {
			return false
		}
		b.driver.Pop() // a destroyed one
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.devices {
		if b.pushed(driver.Context(b.devices[i].context.Load())) {
			return true
		}
	}
	return slices.ContainsFunc(b.known, b.pushed)
}

// pushed makes ctx current permanently.
func (b *Backend) pushed(ctx driver.Context) bool {
	if ctx == 0 {
		return false
	}
	_, code := b.driver.Push(ctx)
	return code == 0
}

// lives reports whether a context can be made current.
func (b *Backend) lives(ctx driver.Context) bool {
	return b.driver.Do(ctx, func() error { return nil }) == nil
}

// adopt records a stream's context. The library's own events on a device are in the context of its
// first stream, until that is destroyed; a primary context is retained then, so that it lives as
// long as the backend.
func (b *Backend) adopt(ctx driver.Context) (int, error) {
	handle, err := b.driver.ContextDevice(ctx)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := 0
	for i < len(b.devices) && b.devices[i].handle != handle {
		i++
	}
	if i == len(b.devices) {
		return 0, fmt.Errorf("its device %d is not in the driver's list", handle)
	}
	d := &b.devices[i]
	if old := driver.Context(d.context.Load()); old == 0 || old != ctx && !b.lives(old) {
		if d.retained, err = b.retain(handle, ctx); err != nil {
			return 0, err
		}
		d.context.Store(uintptr(ctx))
	}
	if !slices.Contains(b.known, ctx) {
		b.known = append(slices.DeleteFunc(b.known, func(c driver.Context) bool { return !b.lives(c) }), ctx)
	}
	return i, nil
}

// retain takes a reference if ctx is the device's primary context.
func (b *Backend) retain(dev driver.Device, ctx driver.Context) (bool, error) {
	active, err := b.driver.PrimaryActive(dev)
	if err != nil || !active {
		return false, err // retaining an inactive primary context would create it, with hundreds of megabytes
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
