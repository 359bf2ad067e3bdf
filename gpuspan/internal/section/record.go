// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/semconv"
)

type Flags uint16

const (
	FlagNone     Flags = 0
	FlagHost     Flags = 1 << iota // no events: host times only
	FlagStarted                    // the start event was recorded
	flagStep                       // boundary of a step
	FlagMemory                     // memory use was read at start
	FlagGiven                      // GPU duration given by the caller
	FlagChunk                      // gpu.chunk.index is set
	FlagWait                       // End waits for the device
	flagLent                       // foreign code records the events
	flagRecorded                   // and it has confirmed that it did
	flagExtra                      // extra holds something

	flagsPlain = FlagStarted | FlagWait // flags of a plain section
)

// TimingStatus is gpu.timing.status.
type TimingStatus uint8

const (
	StatusTimed TimingStatus = iota
	StatusCaptured
	statusDropped
	StatusDeviceError
	statusTimeout
	statusClockJump
	timingStatuses
)

var statusNames = [timingStatuses]string{
	StatusTimed:       semconv.GPUTimingStatusOk,
	StatusCaptured:    semconv.GPUTimingStatusCaptured,
	statusDropped:     semconv.GPUTimingStatusDropped,
	StatusDeviceError: semconv.GPUTimingStatusDeviceError,
	statusTimeout:     semconv.GPUTimingStatusTimeout,
	statusClockJump:   semconv.GPUTimingStatusClockJump,
}

// String returns the value of gpu.timing.status.
func (s TimingStatus) String() string { return statusNames[s] }

type Times struct {
	StartNs, EndNs int64 // wall clock
	ErrorNs        int64 // that both are off by at most
	Offset         int64 // of the wall clock, for all times of the section
}

// Extra holds what few sections have. A slot keeps its extra for reuse.
type Extra struct {
	Attrs  []attribute.KeyValue
	Links  []trace.Link
	Shares []int64 // items of each link; 0: not stated
	Batch  int     // requests that were linked to, also beyond maxLinks
	Kept   int     // number of links on the span
	Items  int64   // of all of them
	Copied [work.Directions]int64
	Moved  bool // some copied is set
	Stack  []uintptr

	Checksum uint64 // of the output, when summed
	Summed   bool
	IDs      spanid.IDs // reserved for the span
	Elapsed  *elapsed.Value
	Error    string // why the section failed; empty: it did not
}

// MaxLinks bounds the links of one section, 88 bytes each, which its slot keeps. If there are more
// requests, gpu.batch.size and the shares count all of them.
const MaxLinks = 1024

// link adds a request to a batch. If there is no room, a sampled request replaces one that is not.
func (e *Extra) link(sc trace.SpanContext, items int64) {
	e.Batch++
	e.Items += items
	if len(e.Links) < MaxLinks {
		e.Links = append(e.Links, trace.Link{SpanContext: sc})
		e.Shares = append(e.Shares, items)
		return
	}
	i := slices.IndexFunc(e.Links, func(l trace.Link) bool { return !l.SpanContext.IsSampled() })
	if i >= 0 && sc.IsSampled() {
		e.Links[i], e.Shares[i] = trace.Link{SpanContext: sc}, items
	}
}

func (e *Extra) reset() {
	e.Elapsed.Set(0, false) // if nothing was measured
	e.Elapsed = nil
	clear(e.Attrs)
	clear(e.Links)
	e.Checksum, e.Summed, e.Error = 0, false, ""
	e.IDs, e.Batch, e.Kept, e.Items = spanid.IDs{}, 0, 0, 0
	e.Attrs, e.Links, e.Shares, e.Stack = e.Attrs[:0], e.Links[:0], e.Shares[:0], e.Stack[:0]
	if e.Moved {
		e.Copied, e.Moved = [work.Directions]int64{}, false
	}
}

// longestRun is the longest accepted run. Accepted times are between firstTime and lastTime: years
// whose times in ns, and sums of them, fit the integers.
const longestRun = 366 * 24 * time.Hour

var firstTime, lastTime = time.Unix(0, 0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func PossibleRun(d time.Duration) bool { return d >= 0 && d <= longestRun }

func PossibleTime(t time.Time) bool { return !t.Before(firstTime) && !t.After(lastTime) }

// TooOld reports whether a point of the host's axis is more than d ago.
func TooOld(then, now int64, d time.Duration) bool { return now-then > int64(d) }

// SpanOf returns the span of a context that may be nil.
func SpanOf(ctx context.Context) trace.Span { return trace.SpanFromContext(ctx) }

// justEnded is the start of a section of Record that ended at the call.
const justEnded = math.MinInt64

const SourceHost = semconv.GPUTimingSourceHost
