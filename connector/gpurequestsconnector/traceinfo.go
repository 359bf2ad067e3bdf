// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// traceInfos keep what spans state of the requests of their traces: the values of dimensions, and
// the items of a request whose own span lacks them (gpu_derive marks the spans that have them).
type traceInfos struct {
	names  []string
	spans  boundedmap.Recent[key, []string]
	traces boundedmap.Recent[pcommon.TraceID, *traceInfo]
}

// traceInfo is what the spans of a trace state.
type traceInfo struct {
	values   []string // by dimension
	several  []bool   // spans state different values
	requests int      // that were opened
	items    float64
	first    float64 // time to the first item, s
	model    string
}

func newTraceInfos(cfg *Config) traceInfos {
	return traceInfos{
		names:  cfg.Dimensions,
		spans:  boundedmap.NewRecent[key, []string](cfg.MaxSpans),
		traces: boundedmap.NewRecent[pcommon.TraceID, *traceInfo](cfg.MaxRequests),
	}
}

// trace returns the information of a trace.
func (t *traceInfos) trace(id pcommon.TraceID) *traceInfo {
	if x := t.traces.Get(id); x != nil {
		return x
	}
	x := &traceInfo{values: make([]string, len(t.names)), several: make([]bool, len(t.names))}
	t.traces.Put(id, x)
	return x
}

// addInfo keeps what a span states of the requests of its trace.
func (b *book) addInfo(x ptrace.Span, resource pcommon.Map, of *span) {
	t := &b.infos
	attrs := x.Attributes()
	if v, ok := attrs.Get(string(semconv.GPUOperationItemsKey)); ok && of.kind == hostSpan {
		info := t.trace(of.Trace)
		info.items, _ = spanfacts.Number(v)
		if v, ok := attrs.Get(string(semconv.GPURequestTimeToFirstItemKey)); ok {
			info.first, _ = spanfacts.Number(v)
		}
		if v, ok := attrs.Get(string(semconv.GenAIRequestModelKey)); ok {
			info.model = b.text(spanfacts.Clip(v.AsString()))
		}
	}
	if len(t.names) == 0 {
		return
	}
	var own []string
	for i, name := range t.names {
		v, ok := attrs.Get(name)
		if !ok && of.kind == requestSpan {
			v, ok = resource.Get(name)
		}
		if !ok {
			continue
		}
		text := v.AsString()
		if text == "" {
			continue
		}
		text = b.text(spanfacts.Clip(text))
		if own == nil {
			own = make([]string, len(t.names))
		}
		own[i] = text
		info := t.trace(of.Trace)
		info.several[i] = info.several[i] || info.values[i] != "" && info.values[i] != text
		info.values[i] = text
	}
	if own != nil {
		t.spans.Put(of.key, own)
	}
}

// inform completes a request that closes.
func (b *book) inform(r *request) {
	t := &b.infos
	info := t.traces.Get(r.Trace)
	if len(t.names) > 0 {
		r.dimensions = make([]string, len(t.names))
		k := r.key
		for range maxDepth {
			for i, v := range t.spans.Get(k) {
				if r.dimensions[i] == "" {
					r.dimensions[i] = v
				}
			}
			s := b.find(0, k)
			if s == nil || s.parent.IsEmpty() {
				break
			}
			k.Span = s.parent
		}
		for i := range r.dimensions {
			if info != nil && r.dimensions[i] == "" && !info.several[i] {
				r.dimensions[i] = info.values[i]
			}
		}
	}
	// Of several requests of a trace, such as of prefill and decode, none is known to have the items.
	if info == nil || info.items == 0 || info.requests != 1 || len(r.accounts) != 1 || r.accounts[0].items > 0 {
		return
	}
	r.accounts[0].items = info.items
	if r.firstItem == 0 {
		r.firstItem = info.first
	}
	if r.model == "" {
		r.model = info.model
	}
}
