// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// Fact is an attribute of a section whose number differs from run to run. Those before [FactRead] are float64, the
// others int64.
type Fact uint8

// Facts in the order in which spans have them: what was measured, then what the application states.
const (
	FactDuration Fact = iota
	FactTimingError
	FactStartDelay
	FactEndDelay
	FactFLOPs
	FactRead
	FactWritten
	FactIO
	FactItems
	FactOccurrence
	NumFacts

	firstStated = FactFLOPs
)

// FactKeys are their attributes.
var FactKeys = [NumFacts]attribute.Key{
	semconv.GPUDurationKey, semconv.GPUTimingErrorKey, semconv.GPUStartDelayKey, semconv.GPUEndDelayKey,
	semconv.GPUFLOPCountKey, semconv.GPUIOReadSizeKey, semconv.GPUIOWriteSizeKey, semconv.GPUIOSizeKey,
	semconv.GPUOperationItemsKey,
	semconv.GPUOperationOccurrenceKey,
}

// Facts are those of one section, so that a sink need not go through attributes for what every section has.
type Facts struct {
	Known uint16           // bit 1<<f: Fact f is there
	Bits  [NumFacts]uint64 // of a float64, or an int64
}

func (f *Facts) float(x Fact, v float64) {
	f.Known |= 1 << x
	f.Bits[x] = math.Float64bits(v)
}

// stated sets an integer that is there unless it is 0.
func (f *Facts) stated(x Fact, v int64) {
	if v != 0 {
		f.Known |= 1 << x
		f.Bits[x] = uint64(v)
	}
}

// of takes what is known of a section. Seconds on the wire.
func (f *Facts) of(r *record, clock *hostClock) {
	f.Known = 0
	switch {
	case r.flags&flagGiven != 0:
		f.float(FactDuration, r.gpu/1e9)
	case r.timed:
		f.float(FactDuration, r.gpu/1e9)
		f.place(r, clock)
	}
	w := &r.work
	if w.FLOPs != 0 {
		f.float(FactFLOPs, w.FLOPs)
	}
	f.stated(FactRead, w.Read)
	f.stated(FactWritten, w.Written)
	if w.Bytes != 0 { // else it is the sum of what is read and written
		f.stated(FactIO, w.Read+w.Written+w.Bytes)
	}
	f.stated(FactItems, w.Items)
	if r.occurrence == 1 { // the first, which may be slower than all others
		f.stated(FactOccurrence, 1)
	}
}

// place takes how sure the place of a section or step is, and the delays, which place the calls of Start and End.
func (f *Facts) place(r *record, clock *hostClock) {
	if r.device.unusual(r.errorNs) {
		f.float(FactTimingError, seconds(r.errorNs))
	}
	f.float(FactStartDelay, seconds(r.startNs-clock.at(r.hostStart, r.offset)))
	if d := r.endNs - clock.at(r.hostEnd, r.offset); waited(d, r.gpu) {
		f.float(FactEndDelay, seconds(d))
	}
}

// waited reports whether the device waited for the host in gpu ns that ended delay ns after the host's call of End:
// less than a tenth of the work was still to be done then. Where more was, the queue hid what the host did, and the
// delay is not stated.
func waited(delay int64, gpu float64) bool { return 10*float64(delay) < gpu }

// attributes appends the facts from one up to another.
func (f *Facts) attributes(kv []attribute.KeyValue, from, to Fact) []attribute.KeyValue {
	for x := from; x < to; x++ {
		switch {
		case f.Known&(1<<x) == 0:
		case x < FactRead:
			kv = append(kv, FactKeys[x].Float64(math.Float64frombits(f.Bits[x])))
		default:
			kv = append(kv, FactKeys[x].Int64(int64(f.Bits[x])))
		}
	}
	return kv
}
