// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// device writes the span of one activity.
func (s *spans) device(a *activity, above *node, p *process) {
	c := spanRef{above.self.trace, s.p.ids().span(idEvent, int64(a.seq))}
	parent := above.self.span
	if section, ok := s.onDevice(above, a.device); ok {
		parent = section
	}
	// A source that knows under which live span the activity was launched states it; the link points to the window.
	live := spanRef{}
	if a.detail.TraceParent != "" {
		live, _ = parseTraceParent(a.detail.TraceParent)
	}
	isLive := !live.trace.IsEmpty() && !live.span.IsEmpty()
	if isLive {
		c.trace, parent = live.trace, live.span
	}
	sp := s.on(a.device, p, c, parent, a.start, a.end)
	if isLive {
		link{above.self, semconv.GPULinkTypeWindow}.add(sp)
	}
	m := sp.Attributes()
	most := 13
	if a.comm || s.p.opts.Attributes == spanfacts.Full {
		most = 20
	}
	m.EnsureCapacity(most)
	if served := s.requests(sp, &a.detail); served > 0 {
		putInt(m, semconv.GPUBatchSizeKey, served)
	}
	t := s.text(a.name)
	switch {
	case a.comm:
		sp.SetName(s.kernelText(a.name).kernel)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeCollective)
		m.PutStr(string(semconv.GPUOperationCategoryKey), semconv.GPUOperationCategoryComm)
		putName(m, t.full)
		s.collective(m, &a.detail, s.p.Names.Name(a.name))
	case a.kind == KindKernel && a.detail.WholeGraph:
		sp.SetName(t.name)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeGraph)
	case a.kind == KindKernel:
		sp.SetName(s.kernelText(a.name).kernel)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeKernel)
		putName(m, t.full)
		if w := a.launch.work; w != nil && w.launches == 1 { // of several launches, none does all of it
			putWork(m, &w.Work)
		}
	case a.kind == KindCopy:
		sp.SetName(t.name)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeCopy)
		putText(m, semconv.GPUCopyDirectionKey, a.detail.Direction)
		putText(m, semconv.GPUCopyHostMemoryKey, a.detail.HostMemory)
	case a.kind == KindMemset:
		sp.SetName(t.name)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeMemset)
	}
	if a.kind != KindKernel && a.detail.HasBytes {
		putInt(m, semconv.GPUIOSizeKey, a.detail.Bytes)
	}
	s.names(m, a.device)
	putInt(m, semconv.GPUStreamIDKey, a.stream)
	putSeconds(m, semconv.GPUDurationKey, a.duration)
	if a.corr != 0 {
		putInt(m, semconv.GPUCorrelationIDKey, a.corr&correlationMask)
	}
	if a.hasLaunch {
		putSeconds(m, semconv.GPUStartDelayKey, a.start-a.launch.start)
		putSeconds(m, semconv.GPULaunchDelayKey, max(0, a.start-a.launch.end))
	}
	if s.p.opts.Attributes == spanfacts.Full {
		launched(m, &a.detail)
	}
	s.kernel(m, a)
	if a.replayed {
		s.replayed(m, a)
	}
}

// replayed writes what created a graph's node when the graph was captured.
func (s *spans) replayed(m pcommon.Map, a *activity) {
	putText(m, semconv.GPUGraphNodeOperatorKey, s.p.Names.text(a.launch.op))
	putText(m, semconv.GPUGraphNodeRangeKey, s.p.Names.text(a.within))
}

// putName writes a kernel's full name, truncated to a limit.
func putName(m pcommon.Map, full string) {
	if full != "" {
		m.PutStr(string(semconv.GPUKernelNameKey), full)
	}
}

// requests links a device activity to the requests that it served together, and returns how many there were.
func (s *spans) requests(sp ptrace.Span, d *Detail) int64 {
	if d.Requests == 0 && d.RequestsLost == 0 {
		return 0
	}
	n := int64(0)
	for text := range strings.FieldsSeq(s.p.Names.Name(d.Requests)) {
		if at, err := parseTraceParent(text); err == nil {
			link{at, semconv.GPULinkTypeRequest}.add(sp)
			n++
		}
	}
	sp.SetDroppedLinksCount(uint32(min(max(d.RequestsLost, 0), math.MaxUint32)))
	return n + d.RequestsLost
}

// putWork writes the FLOPs and bytes of the only kernel of an operator.
func putWork(m pcommon.Map, w *timeline.Work) {
	if w.FLOPs > 0 {
		m.PutDouble(string(semconv.GPUFLOPCountKey), w.FLOPs)
		putText(m, semconv.GPUFLOPPrecisionKey, w.Precision)
	}
	if w.Bytes > 0 {
		putInt(m, semconv.GPUIOSizeKey, int64(w.Bytes))
	}
}

// launched writes how a kernel was launched.
func launched(m pcommon.Map, d *Detail) {
	if d.HasGrid {
		putInts(m, semconv.GPUKernelGridKey, d.Grid)
		putInts(m, semconv.GPUKernelBlockKey, d.Block)
	}
	if d.HasResources {
		putInt(m, semconv.GPUKernelRegistersKey, d.Registers)
		putInt(m, semconv.GPUKernelSharedMemorySizeKey, d.SharedMemory)
	}
	if d.BlocksPerSM != 0 {
		m.PutDouble(string(semconv.GPUKernelBlocksPerSMKey), d.BlocksPerSM)
	}
	if d.WarpsPerSM != 0 {
		m.PutDouble(string(semconv.GPUKernelWarpsPerSMKey), d.WarpsPerSM)
	}
}

func (s *spans) kernel(m pcommon.Map, a *activity) {
	d := &a.detail
	switch {
	case d.HasOccupancy:
		m.PutDouble(string(semconv.GPUKernelOccupancyEstimateKey), d.Occupancy)
	case d.HasGrid && d.HasResources:
		if _, share, _ := s.limitsOf(a.device).Waves(launchOf(d)); share > 0 {
			m.PutDouble(string(semconv.GPUKernelOccupancyEstimateKey), share)
		}
	}
	if d.Graph != 0 {
		putInt(m, semconv.GPUGraphIDKey, d.Graph)
	}
	if d.GraphNode != 0 {
		putInt(m, semconv.GPUGraphNodeIDKey, d.GraphNode)
	}
}

func (s *spans) collective(m pcommon.Map, d *Detail, kernel string) {
	name := cmp.Or(d.Collective, CollectiveName(kernel))
	putText(m, semconv.GPUCollectiveNameKey, name)
	algorithm, protocol := collectiveAlgorithm(kernel)
	putText(m, semconv.GPUCollectiveAlgorithmKey, algorithm)
	putText(m, semconv.GPUCollectiveProtocolKey, protocol)
	putText(m, semconv.GPUCollectiveGroupNameKey, d.Group)
	if d.GroupID != 0 {
		putText(m, semconv.GPUCollectiveGroupIDKey, s.p.Names.Name(d.GroupID))
	}
	if d.HasSequence {
		putInt(m, semconv.GPUCollectiveSequenceKey, d.Sequence)
	}
	if d.HasPeer {
		putInt(m, semconv.GPUCollectivePeerRankKey, d.Peer)
	}
	putText(m, semconv.GPUCollectiveElementTypeKey, d.ElementType)
	if d.GroupSize > 0 {
		putInt(m, semconv.GPUCollectiveGroupSizeKey, d.GroupSize)
	}
	if size := collectiveSize(name, d.InElements, d.OutElements, ElementSize(d.ElementType)); size > 0 {
		putInt(m, semconv.GPUIOSizeKey, size)
	}
}
