// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"fmt"
	"strings"
	"time"
)

// DeviceStats are the main numbers of a device's window, as on its span.
type DeviceStats struct {
	Ordinal int64
	Model   string        // empty: not stated
	Window  time.Duration // from the first start to the last end
	Busy    time.Duration // union of kernels, copies and memsets
	Compute time.Duration // union of kernels that are no collectives
	Comm    time.Duration // union of collectives
	Exposed time.Duration // of that, with no compute kernel beside it

	FLOPs    float64 // of operators whose work is known; 0: of none
	Coverage float64 // part of the kernel time, collectives left out, that those launched
}

// String is one line for people.
func (d DeviceStats) String() string {
	part := func(t time.Duration) string {
		return fmt.Sprintf("%s (%.3g %%)", span(int64(t)), 100*float64(t)/float64(max(d.Window, 1)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "GPU %d", d.Ordinal)
	if d.Model != "" {
		fmt.Fprintf(&b, " (%s)", d.Model)
	}
	fmt.Fprintf(&b, ": %s, busy %s, computing %s", span(int64(d.Window)), part(d.Busy), part(d.Compute))
	if d.Comm > 0 {
		fmt.Fprintf(&b, ", communicating %s, exposed %s", part(d.Comm), part(d.Exposed))
	}
	if d.FLOPs > 0 {
		fmt.Fprintf(&b, ", %.3g GFLOP in %.3g %% of the kernel time", d.FLOPs/1e9, 100*d.Coverage)
	}
	return b.String()
}

func (s *spans) deviceStats(d *deviceWindow) DeviceStats {
	return DeviceStats{
		Ordinal: d.ordinal, Model: s.deviceOf(d.ordinal).Model, Window: time.Duration(d.all.span()), Busy: time.Duration(d.all.total),
		Compute: time.Duration(d.compute.total), Comm: time.Duration(d.comm.total), Exposed: time.Duration(d.comm.total - d.overlap()),
		FLOPs: d.computed.flops, Coverage: d.computed.coverage(),
	}
}
