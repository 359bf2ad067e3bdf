// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// dims are the dimensions of an operation's metrics, the key of its bundle.
type dims struct {
	name, kind, category                  string
	id, status                            string
	direction, precision, itemType, extra string
}

// facts are what a span says, and what the metrics need beside that.
type facts struct {
	spanfacts.Facts
	extra string // values of Config.Dimensions
	state string // of steps only, as are flags
	flags uint32
}

// load fills f from a span of a scope; it reports whether the span is GPU work, or a request that may have energy.
func (f *facts) load(s ptrace.Span, scope *spanfacts.Scope) bool {
	if !f.Load(s, scope) || !f.Kind.Work() && f.Kind != spanfacts.Request {
		return false
	}
	if f.Kind == spanfacts.Step {
		f.state, f.flags = s.TraceState().AsRaw(), s.Flags()
	}
	return true
}

func (f *facts) dims() dims {
	return dims{
		name: f.Name, kind: f.Type, category: f.Category, id: f.Device.ID, status: f.Status,
		direction: f.Direction, precision: f.Precision, itemType: f.ItemType, extra: f.extra,
	}
}

// parent is the span above.
func (f *facts) parent() spanfacts.Key { return spanfacts.Key{Trace: f.Key.Trace, Span: f.Parent} }

// collective says whether it is communication between devices.
func (f *facts) collective() bool {
	return f.Kind == spanfacts.Collective || f.Category == semconv.GPUOperationCategoryComm
}

// adjustedCount is how many spans one sampled span stands for, by the rejection threshold of its trace state
// (`ot=th:c` means that 12/16 were not sampled, so it stands for 4). 1 without one, and where it cannot be read.
func adjustedCount(traceState string) float64 {
	if !strings.Contains(traceState, "ot=") {
		return 1
	}
	w3c, err := sampling.NewW3CTraceState(traceState)
	if err != nil {
		return 1
	}
	if n := w3c.OTelValue().AdjustedCount(); n >= 1 {
		return n
	}
	return 1 // 0: no threshold
}
