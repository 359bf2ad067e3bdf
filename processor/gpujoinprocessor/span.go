// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// fault is the reason why a GPU span cannot be joined; the value of `reason` in the processor's own
// metrics.
type fault uint8

const (
	sound fault = iota
	noID
	endBeforeStart
	zeroLength
	epoch
	future
	faults
)

var faultNames = [faults]string{"", "no_id", "end_before_start", "zero_length", "epoch", "future"}

// gpuSpan is what is kept of a span with a GPU operation while it waits. It has no pointers, so
// that the garbage collector does not visit waiting spans.
type gpuSpan struct {
	attribution.Key
	start     int64 // ns, on the device
	end       int64
	at        attribution.Handle
	more      int32 // index of its first handle on further devices in the batch's more
	further   int32 // number of those handles
	wire      int32 // index of the span in its request
	target    int32 // index in the batch's targets
	scope     int32 // of the batch's scopes
	step      bool
	fault     fault
	hasMemory bool  // gpu.memory.usage is there already
	derives   uint8 // attributes that gpu_derive may add at level lean
}

// read reads a span of a scope. It returns false if the span is unrelated to a GPU, is a usage
// record of work with its own spans, or was joined already. share becomes what the energy
// attribution needs of it, at the target that it names; stream is -1 if it has none, and for a
// step, whose stream is the host's. f is scratch space.
func (g *gpuSpan) read(
	share *attribution.Span, f *spanfacts.Facts, s ptrace.Span, scope *spanfacts.Scope, r *resourceInfo, at *targetName,
	now int64, maxWait time.Duration,
) (stream int64, ok bool) {
	if !f.Load(s, scope) || f.Joined || !f.Kind.Work() && f.Kind != spanfacts.Request {
		return -1, false
	}
	*g = gpuSpan{step: f.Kind == spanfacts.Step, hasMemory: f.HasMemory}
	*at = targetName{
		res: r, hwID: f.Device.ID, bdf: f.Device.BDF, ordinal: f.Device.Ordinal,
		request: f.Kind == spanfacts.Request,
	}
	if at.hwID == "" {
		_, at.unreadable = s.Attributes().Get(string(semconv.HWIDKey)) // stated, but empty or no text
	}
	switch {
	case f.Kind == spanfacts.Step:
		g.derives = 4 // throughput, MFU, HFU, quality
	case f.Size > 0 || f.FLOPs > 0:
		g.derives = 3 // rate, share of the roof, bound
	}
	if f.Items > 0 {
		g.derives++
	}
	stream = f.Stream
	*share = attribution.Span{
		Key:     attribution.Key{Trace: f.Key.Trace, Span: r.own(f.Key.Span)},
		Parent:  r.ownParent(s, f.Parent),
		Process: r.process,
		Start:   int64(min(f.Start, math.MaxInt64)),
		End:     int64(min(f.End, math.MaxInt64)),
		Yields:  f.HostTimed() || f.InWindow,
	}
	if share.Request = at.request; at.request {
		share.Weight = r.weight
		if n, ok := spanfacts.AdjustedCount(s.TraceState().AsRaw()); ok {
			share.Weight = max(n, share.Weight)
		}
		if r.server != 0 {
			share.Process = r.loads.serve(r)
		}
	} else if r.server != 0 && !share.Yields {
		share.Process = r.loads.processOf(r.process)
	}
	// A request that waits in the engine's queue does not occupy the device yet.
	if queue := f.Queue * 1e9; at.request && queue < float64(share.End-share.Start) {
		share.Start += int64(queue)
	}
	g.Key, g.start, g.end = share.Key, share.Start, share.End
	if g.fault = check(share, now, maxWait); g.fault != sound || g.step {
		stream = -1
	}
	return stream, true
}

func check(s *attribution.Span, now int64, maxWait time.Duration) fault {
	switch {
	case s.Span == [8]byte{} || s.Trace == [16]byte{}:
		return noID
	case s.End < s.Start:
		return endBeforeStart
	case s.Start < spanfacts.Earliest:
		return epoch
	case s.End > now+int64(maxWait):
		return future
	case s.End == s.Start:
		return zeroLength
	}
	return sound
}
