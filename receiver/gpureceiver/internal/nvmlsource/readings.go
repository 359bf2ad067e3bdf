// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"encoding/binary"
	"math"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// reading is one call of the catalogue and how it is made.
type reading struct {
	gpuquantity.Call
	quantity gpuquantity.Quantity
	args     []any
	get      func(r *reading, s *source, device any) (uint64, nvml.Return) // nil: as the catalogue describes
}

const (
	milli = 1e-3
	mebi  = 1 << 20
)

// fast and slow are the readings of the two paces, in the catalogue's order: energy first, since
// its time matters most.
var fast, slow = readingsAt(gpuquantity.Fast), readingsAt(gpuquantity.Slow)

func readingsAt(pace gpuquantity.Pace) (list []reading) {
	for _, q := range gpuquantity.All() {
		r := reading{Call: q.Info().NVML, quantity: q}
		if r.Pace != pace {
			continue
		}
		for _, a := range r.Args {
			r.args = append(r.args, a)
		}
		switch {
		case r.Function == "nvmlDeviceGetRetiredPages":
			r.get = retiredPages
		case r.FieldID != 0:
			r.get = fieldValue
		}
		list = append(list, r)
	}
	return list
}

const fieldValues = "nvmlDeviceGetFieldValues"

// supported reports whether the driver has a function for the reading.
func (r *reading) supported(lib nvml.Library) bool {
	return r.Function != "" && lib.Has(r.Function) || r.FieldID != 0 && lib.Has(fieldValues)
}

// retiredPages returns a number of pages. With an empty buffer, the library reports how many there
// are and that they do not fit.
func retiredPages(r *reading, s *source, device any) (uint64, nvml.Return) {
	var n uint64
	ret := s.lib.Call(r.Function, device, r.args[0], &n, 0)
	if ret == nvml.ErrorInsufficientSize {
		ret = nvml.Success
	}
	return n, ret
}

// fieldValue returns a value of nvmlDeviceGetFieldValues; where the driver does not have it, the
// function's result, as the average power (up to 1 s on newer chips) for the power now.
func fieldValue(r *reading, s *source, device any) (uint64, nvml.Return) {
	v := &s.field
	*v = nvml.FieldValue{FieldID: r.FieldID}
	ret := s.lib.Call(fieldValues, device, 1, v)
	if ret == nvml.Success {
		ret = nvml.Return(v.NvmlReturn)
	}
	if ret == nvml.Success {
		return uint64(binary.NativeEndian.Uint32(v.Value[:4])), ret
	}
	if r.Function == "" {
		return 0, ret
	}
	return s.number(r.Function, device)
}

// of makes the call.
func (r *reading) of(s *source, device any) (float64, nvml.Return) {
	if r.get != nil {
		v, ret := r.get(r, s, device)
		return float64(v) * r.Factor(), ret
	}
	ret := s.call(r.Function, r.Results, append(append(s.args[:0], device), r.args...)...)
	v := s.results[r.Use]
	if r.Second {
		b := binary.NativeEndian.AppendUint64(nil, v)
		v = uint64(binary.NativeEndian.Uint32(b[4:]))
	} else if !r.Wide {
		v &= math.MaxUint32 // the upper half holds another value
	}
	if r.quantity == gpuquantity.Throttle {
		return devicesamples.ThrottleMask(v), ret
	}
	return float64(v) * r.Factor(), ret
}

// call calls a function that writes results behind its arguments. These and the results are in the
// source's own memory, since a call on every device at every sample would make garbage.
func (s *source) call(function string, results int, args ...any) nvml.Return {
	s.results = [4]uint64{}
	for i := range results {
		args = append(args, &s.results[i])
	}
	return s.lib.Call(function, args...)
}

// number returns the number that a function writes behind its arguments.
func (s *source) number(function string, args ...any) (uint64, nvml.Return) {
	ret := s.call(function, 1, append(s.args[:0], args...)...)
	return s.results[0], ret
}

// text returns the text that a function writes into a buffer behind its arguments.
func (s *source) text(function string, args ...any) (string, nvml.Return) {
	var b [96]byte
	ret := s.lib.Call(function, append(args, &b, len(b))...)
	return nvml.Text(b[:]), ret
}
