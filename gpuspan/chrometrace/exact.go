// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/hex"
	"math"
	"strconv"

	"github.com/otelgpu/otelgpu/semconv"
)

// An event says what its span was. Most of it follows from name, times and args, by the rules of Attribute; what does
// not is in the argument "otel", an object with
//
//	name        the span's name, where the event has another; a kernel's event has gpu.kernel.name
//	start, end  the span's unix nanoseconds, where the slice is drawn otherwise
//	absent      true: the span has no gpu.device.ordinal, and device is made up
//	origin      index into the file's otelgpuOrigins; 0 where absent
//	attributes  those that args cannot hold: {"double":"NaN"}, {"bytes":"<base64>"}, {"map":{…}}, and names that args
//	            have another use for
//
// "otel":"again" marks the second drawing of a step, which is no span.

// FormatVersion is the top-level otelgpuFormat of files whose events say what their spans were.
const FormatVersion = 1

// argNames are the arguments that stand for an attribute under another name; empty: that are derived from others.
var argNames = func() map[string]string {
	m := map[string]string{
		"device": string(semconv.GPUDeviceOrdinalKey), "stream": string(semconv.GPUStreamIDKey),
		"correlation": string(semconv.GPUCorrelationIDKey), "bytes": string(semconv.GPUIOSizeKey),
		"flops": string(semconv.GPUFLOPCountKey), occupancyPercent: string(semconv.GPUKernelOccupancyEstimateKey),
		"In msg nelems": "", "Out msg nelems": "",
	}
	for key, name := range torchNames {
		m[name] = key
	}
	return m
}()

// reserved reports whether an argument of the name means something else than the attribute of it, which is kept apart
// then.
func reserved(name string) bool {
	switch name {
	case "", "loop", "trace_id", "span_id", "parent_span_id", "span.kind", "otel.status_code", "otel.status_description",
		"links", "otel":
		return true
	}
	_, ok := argNames[name]
	return ok
}

const occupancyPercent = "est. achieved occupancy %"

// Attribute is the attribute that an argument stands for, and false for arguments that are derived from others. The
// argument of a percentage stands for a hundredth of it.
func Attribute(arg string) (key string, percent, ok bool) {
	if key, ok := argNames[arg]; ok {
		return key, arg == occupancyPercent, key != ""
	}
	return arg, false, true
}

// tells reports whether JSON holds the value such that it can be read back: not NaN, infinities, bytes.
func (v *Value) tells() bool {
	switch v.kind {
	case kindFloat:
		f := math.Float64frombits(v.num)
		return !math.IsNaN(f) && !math.IsInf(f, 0)
	case kindBytes:
		return false
	case kindList, kindMap:
		for i := range v.list {
			if !v.list[i].tells() {
				return false
			}
		}
	}
	return true
}

// taken are the indices of arguments that become fields; −1: there is none.
type taken struct{ device, stream, correlation int }

// settle takes out the arguments that the fields of the event say as well, and notes what they say too much.
func (e *Event) settle(t taken) {
	device := e.Track.Kind >= DeviceSteps
	e.blank(t.device, device)
	e.blank(t.stream, device && e.Track.ID >= 0)
	e.blank(t.correlation, e.Correlation != 0)
	e.absent = device && t.device < 0
}

func (e *Event) blank(i int, field bool) {
	if i >= 0 && field && e.Args[i].Value.kind == kindInt {
		e.Args[i].Key = ""
	}
}

// maxLinks of a span become an argument; a batch of thousands of requests would drown the others.
const maxLinks = 64

// Link adds a link to a span; the first 64 are kept.
func (e *Event) Link(trace [16]byte, span [8]byte) {
	if len(e.Links) < maxLinks {
		e.Links = append(e.Links, String(hex.EncodeToString(trace[:])+":"+hex.EncodeToString(span[:])))
	}
}

// exact writes the argument "otel" where there is something for it to say.
func (w *Writer) exact(e *Event, origin int, start, end int64) {
	before := len(w.buf)
	b := append(appendKey(w.buf, "otel"), '{')
	empty := len(b)
	if e.renamed {
		b = appendString(appendKey(b, "name"), e.name)
	}
	if e.Start != start {
		b = strconv.AppendInt(appendKey(b, "start"), e.Start, 10)
	}
	at := e.End
	if e.ended {
		at = e.end
	}
	if at != end {
		b = strconv.AppendInt(appendKey(b, "end"), at, 10)
	}
	if e.absent {
		b = append(appendKey(b, "absent"), "true"...)
	}
	if origin != 0 {
		b = strconv.AppendInt(appendKey(b, "origin"), int64(origin), 10)
	}
	if len(e.kept) > 0 {
		b = append(appendKey(b, "attributes"), '{')
		b = append(appendExactArgs(b, e.kept), '}')
	}
	if w.buf = b; len(b) == empty {
		w.buf = b[:before]
		return
	}
	w.buf = append(w.buf, '}')
}

func appendExactArgs(b []byte, args []Arg) []byte {
	for i := range args {
		b = appendExact(appendKey(b, args[i].Key), args[i].Value)
	}
	return b
}

// appendExact writes a value such that its type can be read back.
func appendExact(b []byte, v Value) []byte {
	switch v.kind {
	case kindFloat:
		if !v.tells() {
			return append(appendValue(append(b, `{"double":`...), v), '}')
		}
	case kindBytes:
		return append(appendValue(append(b, `{"bytes":`...), v), '}')
	case kindList:
		return appendElements(b, &v, appendExact)
	case kindMap:
		return append(appendElements(append(b, `{"map":`...), &v, appendExact), '}')
	}
	return appendValue(b, v)
}
