// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/hostclock"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/semconv"
)

// FactsOf collects the facts of a section. Times are in seconds.
func FactsOf(f *sink.Facts, r *record.Record, clock *hostclock.Clock) {
	f.Known = 0
	switch {
	case r.Flags&record.FlagGiven != 0:
		f.Float(sink.FactDuration, r.GPU/1e9)
	case r.Timed:
		f.Float(sink.FactDuration, r.GPU/1e9)
		placeFacts(f, r, clock)
	}
	w := &r.Work
	if w.FLOPs != 0 {
		f.Float(sink.FactFLOPs, w.FLOPs)
	}
	f.Stated(sink.FactRead, w.Read)
	f.Stated(sink.FactWritten, w.Written)
	if w.Bytes != 0 { // otherwise it is the sum of bytes read and written
		f.Stated(sink.FactIO, w.Read+w.Written+w.Bytes)
	}
	f.Stated(sink.FactItems, w.Items)
	if r.Occurrence == 1 { // the first, which may be slower than all others
		f.Stated(sink.FactOccurrence, 1)
	}
}

// placeFacts sets the error of the times of a section or step, and the delays after the calls of Start and End.
func placeFacts(f *sink.Facts, r *record.Record, clock *hostclock.Clock) {
	if r.Device.Unusual(r.ErrorNs) {
		f.Float(sink.FactTimingError, spanattr.Seconds(r.ErrorNs))
	}
	f.Float(sink.FactStartDelay, spanattr.Seconds(r.StartNs-clock.At(r.HostStart, r.Offset)))
	if d := r.EndNs - clock.At(r.HostEnd, r.Offset); waited(d, r.GPU) {
		f.Float(sink.FactEndDelay, spanattr.Seconds(d))
	}
}

// waited reports whether the device waited for the host in gpu ns that ended delay ns after the host's call of End:
// less than a tenth of the work was left then. If more was left, the queue hid the host's time, and no delay is
// reported.
func waited(delay int64, gpu float64) bool { return 10*float64(delay) < gpu }

// precisionAttrs is gpu.flop.precision for each Precision.
var precisionAttrs = func() (list [work.Precisions][]attribute.KeyValue) {
	for i := 1; i < work.Precisions; i++ {
		list[i] = []attribute.KeyValue{semconv.GPUFLOPPrecisionKey.String(work.Precision(i).String())}
	}
	return list
}()

// PrecisionOf returns the precision of stated FLOPs; empty if none are stated.
func PrecisionOf(w *work.Work) []attribute.KeyValue {
	if w.FLOPs == 0 || int(w.Precision) >= work.Precisions {
		return nil
	}
	return precisionAttrs[w.Precision]
}
