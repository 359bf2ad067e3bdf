// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"cmp"
	"context"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Stream is a device stream that sections run on. Any goroutine may use it; sections of one stream contend for its
// mutex, sections of different streams share nothing. A nil Stream does nothing.
type Stream struct{ stream *record.Stream }

// real returns the stream that callers hold; nil for a nil and for a zero Stream, which do nothing.
func (s *Stream) real() *record.Stream {
	if s == nil {
		return nil
	}
	return s.stream
}

// streamOf returns what callers hold of a stream: always the same.
func streamOf(s *record.Stream) *Stream {
	if s == nil {
		return nil
	}
	return s.Public.Get(func() any { return &Stream{s} }).(*Stream)
}

// StreamOption configures [Profiler.Stream].
type StreamOption interface{ applyStream(*timeline.StreamConfig) }

type streamOption func(*timeline.StreamConfig)

func (f streamOption) applyStream(c *timeline.StreamConfig) { f(c) }

// AllowLegacy accepts the legacy default stream (handle 0 or 1). It waits for every blocking stream of the device and
// they for it, so its sections include work of other streams. Each context has its own: the one that is current on the
// calling OS thread (HIP: the current device) is meant, so call [Profiler.Stream] on the locked thread that uses it.
func AllowLegacy() StreamOption {
	return streamOption(func(c *timeline.StreamConfig) { c.Legacy = true })
}

// NeverCaptured promises that no graph is ever captured on the stream, which saves a driver call at Start and at End.
func NeverCaptured() StreamOption {
	return streamOption(func(c *timeline.StreamConfig) { c.NoCapture = true })
}

// ForeignEvents marks a stream whose handle stays with foreign code, such as a C library: gpuspan records nothing on
// it, and lends events instead ([Operation.Open]). They are created in the context that is current on the calling OS
// thread (HIP: on its current device), which must be the foreign stream's. The handle that is passed does not matter;
// the name distinguishes such streams, so register one for each foreign stream. Sections of [Operation.Start] and steps
// on it have host times.
func ForeignEvents() StreamOption {
	return streamOption(func(c *timeline.StreamConfig) { c.Foreign = true })
}

// OnDevice states which device the stream's work runs on if no backend can query it, as in the parent of a server
// process that receives the GPU times of its requests: [Operation.Record] on the stream then gives spans with the
// device's identity, which join like others. Of d the UUID (hw.id) matters most; Ordinal distinguishes devices in
// reports, and the Model selects the peaks. No event is recorded: sections that are started have host times. The handle
// does not matter.
func OnDevice(d backend.Device) StreamOption {
	return streamOption(func(c *timeline.StreamConfig) { c.Device = &d })
}

// ContextWithStream stores s for the code that is called with the result, so that one stream need not be passed through
// all of a program's functions.
func ContextWithStream(ctx context.Context, s *Stream) context.Context {
	return context.WithValue(cmp.Or(ctx, context.Background()), streamKey{}, s)
}

// StreamFromContext returns the stream of [ContextWithStream], as in op.Start(ctx, gpuspan.StreamFromContext(ctx)).
// Without one it is nil, which does nothing.
func StreamFromContext(ctx context.Context) *Stream {
	if ctx == nil {
		return nil
	}
	s, _ := ctx.Value(streamKey{}).(*Stream)
	return s
}

type streamKey struct{}

// Stream registers a device stream of the application: h is a cudaStream_t, CUstream or hipStream_t, or a simulated
// stream. The name is for readers of reports. The same handle gives the same Stream until it is closed; for streams
// with host times the same handle and name do.
//
// The result is nil only for a nil or stopped Profiler. A stream that cannot be timed (per-thread default stream,
// legacy default stream without [AllowLegacy] or without a current context, unknown handle, too many streams) gets host
// times, and the reason goes to the error handler. Registration queries the driver and must not happen while the stream
// captures a graph.
func (p *Profiler) Stream(h uintptr, name string, opts ...StreamOption) *Stream {
	return streamOf(p.on().Stream(h, name, options.All(opts, StreamOption.applyStream)))
}

// Name returns the name that the stream was registered with.
func (s *Stream) Name() string { return s.real().Name() }

// DeviceTimed reports whether sections of the stream get GPU times. It is false without a device, for streams that
// were refused, and after the device failed.
func (s *Stream) DeviceTimed() bool {
	r := s.real()
	return r != nil && r.DeviceTimed()
}

// Close releases the stream: call it before the device stream is destroyed. Pending sections are still read, open ones
// are abandoned. Sections that are started later only count.
func (s *Stream) Close() { s.real().Close() }

// StartNamed starts a section of an operation that is only known by name, below the span of ctx. The first
// Settings.Names names of a profiler become operations, all others share "(other)"; the first 4,096 bytes of a longer
// name count. It costs one lookup more than [Operation.Start].
func (s *Stream) StartNamed(ctx context.Context, name string) Section {
	return Section{s.real().StartNamed(ctx, name)}
}

// EndNamed ends the last started section of that name that is still open on the stream, so that start and end can be
// matched by name in code that cannot keep a Section. If there is none it only counts (`unmatched_end` of
// [Profiler.Misuse]).
func (s *Stream) EndNamed(name string, w Work) {
	s.real().EndNamed(name, w.internal())
}

type syncOption settings.SyncMode

// Sync sets when GPU times are read: for all sections of a stream or of an operation. The operation's mode overrides
// the stream's, which overrides the profiler's ([settings.Settings.Sync]).
func Sync(m settings.SyncMode) interface {
	StreamOption
	OperationOption
} {
	return syncOption(m)
}

func (m syncOption) applyStream(c *timeline.StreamConfig) { c.Sync = settings.SyncMode(m) }

func (m syncOption) applyOperation(c *record.OperationConfig) { c.Sync = settings.SyncMode(m) }
