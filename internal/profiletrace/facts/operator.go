// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/peaks"
)

// Less returns the operator without a part of all that it did.
func (o Operator) Less(part float64) Operator {
	left := 1 - part
	o.FLOPs, o.Bytes = left*o.FLOPs, left*o.Bytes
	return o.Within(scaled(o.Time, left), scaled(o.Alone, left), left)
}

func scaled(t time.Duration, by float64) time.Duration { return time.Duration(by * float64(t)) }

// Within returns the operator restricted to a part of its time, with its other counts in
// proportion.
func (o Operator) Within(of, alone time.Duration, left float64) Operator {
	o.Time, o.Alone = of, alone
	o.Narrow, o.Empty, o.Handed = scaled(o.Narrow, left), left*o.Empty, scaled(o.Handed, left)
	o.Tailed, o.Tail = scaled(o.Tailed, left), left*o.Tail
	return o
}

// WithShapes returns the name of the operator with the shapes of its inputs.
func (o Operator) WithShapes() string { return strings.TrimSpace(o.Name + " " + o.Shapes) }

// Peak is the upper limit of a device.
type Peak struct {
	peaks.Device
	Known  bool
	Stated bool   // by the file, at least in part
	Reason string // why it is not known
}

// State replaces the peaks of 16-bit matrix products and of memory by the peaks that a file states,
// in FLOP and bytes per second, of a device of this model; 0: not stated.
func (p *Peak) State(model string, flops, bandwidth float64) {
	p.Name = cmp.Or(p.Name, model, "the device, as the file states it")
	if flops > 0 {
		p.FLOPs.BF16, p.FLOPs.FP16, p.Known = flops, flops, true
	}
	if bandwidth > 0 {
		p.MemoryBandwidth, p.Known = bandwidth, true
	}
	if p.Stated = flops > 0 || bandwidth > 0; p.Known {
		p.Reason = ""
	}
}

// PeakOf looks up a model; a suffix by which a driver marks a virtual function does not change the
// device.
func PeakOf(model string) Peak {
	if model == "" {
		return Peak{Reason: "the file does not name the device (name it: --device MODEL, or `device` of the receiver)"}
	}
	d, ok := peaks.Lookup(strings.TrimSuffix(model, " VF"))
	if !ok {
		return Peak{Reason: fmt.Sprintf("there is no peak of %q in docs/peaks.md", model)}
	}
	return Peak{Device: d, Known: true}
}
