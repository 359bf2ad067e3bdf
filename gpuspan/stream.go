// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"cmp"
	"context"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Stream is a device stream that sections run on. It is safe for concurrent use; sections of one
// stream contend for its mutex, sections of different streams share nothing. A nil Stream does
// nothing.
type Stream struct{ stream *section.Stream }

// real returns the stream of the caller; nil for a nil and for a zero Stream, which do nothing.
func (s *Stream) real() *section.Stream {
	if s == nil {
		return nil
	}
	return s.stream
}

// streamOf returns the public value of a stream, always the same.
func streamOf(s *section.Stream) *Stream {
	if s == nil {
		return nil
	}
	return s.Public.Get(func() any { return &Stream{s} }).(*Stream)
}

// StreamOption configures [Profiler.Stream].
type StreamOption interface{ applyStream(*section.StreamConfig) }

type streamOption func(*section.StreamConfig)

func (f streamOption) applyStream(c *section.StreamConfig) { f(c) }

// AllowLegacy accepts the legacy default stream (handle 0 or 1). That stream waits for every
// blocking stream of the device and they wait for it, so its sections include work of other
// streams. Each context has one, and the handle refers to the one of the context that is current on
// the calling OS thread (HIP: of the current device), so call [Profiler.Stream] on the locked
// thread that uses it.
func AllowLegacy() StreamOption {
	return streamOption(func(c *section.StreamConfig) { c.Legacy = true })
}

// NeverCaptured declares that no graph is ever captured on the stream, which saves a driver call at
// Start and at End.
func NeverCaptured() StreamOption {
	return streamOption(func(c *section.StreamConfig) { c.NoCapture = true })
}

// ForeignEvents marks a stream whose handle only foreign code has, such as a C library: gpuspan
// records nothing on it, and provides events instead ([Operation.Foreign]). They are created in the
// context that is current on the calling OS thread (HIP: on its current device), which must be the
// foreign stream's. The handle that is passed is ignored; the name distinguishes such streams, so
// register one for each foreign stream. Sections of [Operation.Start] and steps on it have host
// times.
func ForeignEvents() StreamOption {
	return streamOption(func(c *section.StreamConfig) { c.Foreign = true })
}

// OnDevice sets the device of the stream's work if no backend can query it, as in the parent of a
// server process that receives the GPU times of its requests: spans of [Operation.RecordMeasured]
// on the stream then have the device's identity, and gpu_join joins them like others. The UUID of d
// (hw.id) identifies the device; Ordinal distinguishes devices in reports, and Model selects the
// peaks. No event is recorded: sections that are started have host times. The handle is ignored.
func OnDevice(d backend.Device) StreamOption {
	return streamOption(func(c *section.StreamConfig) { c.Device = &d })
}

// ContextWithStream returns a context that carries s, so that a stream need not be passed through
// all of a program's functions.
func ContextWithStream(ctx context.Context, s *Stream) context.Context {
	return context.WithValue(cmp.Or(ctx, context.Background()), streamKey{}, s)
}

// StreamFromContext returns the stream of [ContextWithStream], as in op.Start(ctx,
// gpuspan.StreamFromContext(ctx)). Without one it is nil, which does nothing.
func StreamFromContext(ctx context.Context) *Stream {
	if ctx == nil {
		return nil
	}
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

type streamKey struct{}

// Name returns the name that the stream was registered with.
func (s *Stream) Name() string { return s.real().Name() }

// DeviceTimed reports whether sections of the stream get GPU times. It is false without a device,
// for streams that cannot be timed, and after the device failed.
func (s *Stream) DeviceTimed() bool {
	r := s.real()
	return r != nil && r.DeviceTimed()
}

// Close releases the stream. Call it before the device stream is destroyed. The times of pending
// sections are still read, open sections are abandoned. Sections that are started later are only
// counted.
func (s *Stream) Close() { s.real().Close() }

type syncOption settings.SyncMode

// Sync sets when GPU times are read, for all sections of a stream or of an operation. The
// operation's mode overrides the stream's, which overrides the profiler's
// ([settings.Settings.Sync]).
func Sync(m settings.SyncMode) interface {
	StreamOption
	OperationOption
} {
	return syncOption(m)
}

func (m syncOption) applyStream(c *section.StreamConfig) { c.Sync = settings.SyncMode(m) }

func (m syncOption) applyOperation(c *section.OperationConfig) { c.Sync = settings.SyncMode(m) }
