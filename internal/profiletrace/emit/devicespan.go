// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// device writes the span of one activity.
func (s *spans) device(a *link.Activity, above *node, p *link.Process) {
	c := spanRef{above.self.trace, s.p.ids.span(idEvent, int64(a.Seq))}
	parent := above.self.span
	if section, ok := s.onDevice(above, a.Device); ok {
		parent = section
	}
	// A source that knows under which live span the activity was launched states it; the link
	// points to the window.
	live := spanRef{}
	if a.Detail.TraceParent != "" {
		live, _ = parseTraceParent(a.Detail.TraceParent)
	}
	isLive := !live.trace.IsEmpty() && !live.span.IsEmpty()
	if isLive {
		c.trace, parent = live.trace, live.span
	}
	sp := s.on(a.Device, p, c, parent, a.Start, a.End)
	if isLive {
		spanLink{above.self, semconv.GPULinkTypeWindow}.add(sp)
	}
	m := sp.Attributes()
	most := 13
	if a.Communicates || s.p.Attributes == spanfacts.Full {
		most = 20
	}
	m.EnsureCapacity(most)
	if served := s.requests(sp, &a.Detail); served > 0 {
		putInt(m, semconv.GPUBatchSizeKey, served)
	}
	t := s.text(a.Name)
	switch {
	case a.Communicates:
		sp.SetName(s.kernelText(a.Name).kernel)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeCollective)
		m.PutStr(string(semconv.GPUOperationCategoryKey), semconv.GPUOperationCategoryComm)
		putName(m, t.full)
		s.collective(m, a)
	case a.Kind == event.KindKernel && a.Detail.WholeGraph:
		sp.SetName(t.name)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeGraph)
	case a.Kind == event.KindKernel:
		sp.SetName(s.kernelText(a.Name).kernel)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeKernel)
		putName(m, t.full)
		if w := a.OnlyWork(); w != nil {
			putWork(m, w)
		}
	case a.Kind == event.KindCopy:
		sp.SetName(t.name)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeCopy)
		putText(m, semconv.GPUCopyDirectionKey, a.Detail.Direction)
		putText(m, semconv.GPUCopyHostMemoryKey, a.Detail.HostMemory)
	case a.Kind == event.KindMemset:
		sp.SetName(t.name)
		m.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeMemset)
	}
	if a.Kind != event.KindKernel && a.Detail.HasBytes {
		putInt(m, semconv.GPUIOSizeKey, a.Detail.Bytes)
	}
	s.names(m, a.Device)
	putInt(m, semconv.GPUStreamIDKey, a.Stream)
	putSeconds(m, semconv.GPUDurationKey, a.Duration)
	if a.Correlation != 0 {
		putInt(m, semconv.GPUCorrelationIDKey, a.Correlation&event.CorrelationMask)
	}
	if a.HasLaunch {
		putSeconds(m, semconv.GPUStartDelayKey, a.Start-a.Launch.Start)
		putSeconds(m, semconv.GPULaunchDelayKey, max(0, a.Start-a.Launch.End))
	}
	if s.p.Attributes == spanfacts.Full {
		launched(m, &a.Detail)
	}
	s.kernel(m, a)
	if a.Replayed {
		s.replayed(m, a)
	}
}

// replayed writes what created a graph's node when the graph was captured.
func (s *spans) replayed(m pcommon.Map, a *link.Activity) {
	putText(m, semconv.GPUGraphNodeOperatorKey, s.p.Names.Text(a.Launch.Op))
	putText(m, semconv.GPUGraphNodeRangeKey, s.p.Names.Text(a.Within))
}

// putName writes a kernel's full name, truncated to a limit.
func putName(m pcommon.Map, full string) {
	if full != "" {
		m.PutStr(string(semconv.GPUKernelNameKey), full)
	}
}

// requests links a device activity to the requests that it served together, and returns how many
// there were.
func (s *spans) requests(sp ptrace.Span, d *event.Detail) int64 {
	if d.Requests == 0 && d.RequestsLost == 0 {
		return 0
	}
	n := int64(0)
	for text := range strings.FieldsSeq(s.p.Names.Name(d.Requests)) {
		if at, err := parseTraceParent(text); err == nil {
			spanLink{at, semconv.GPULinkTypeRequest}.add(sp)
			n++
		}
	}
	sp.SetDroppedLinksCount(uint32(min(max(d.RequestsLost, 0), math.MaxUint32)))
	return n + d.RequestsLost
}

// putWork writes the FLOPs and bytes of the only kernel of an operator.
func putWork(m pcommon.Map, w *timeline.Work) {
	if w.FLOPs > 0 {
		putNumber(m, semconv.GPUFLOPCountKey, w.FLOPs)
		putText(m, semconv.GPUFLOPPrecisionKey, w.Precision)
	}
	if w.Bytes > 0 {
		putInt(m, semconv.GPUIOSizeKey, int64(w.Bytes))
	}
}

// launched writes how a kernel was launched.
func launched(m pcommon.Map, d *event.Detail) {
	if d.HasGrid {
		putInts(m, semconv.GPUKernelGridKey, d.Grid)
		putInts(m, semconv.GPUKernelBlockKey, d.Block)
	}
	if d.HasResources {
		putInt(m, semconv.GPUKernelRegistersKey, d.Registers)
		putInt(m, semconv.GPUKernelSharedMemorySizeKey, d.SharedMemory)
	}
	if d.BlocksPerSM != 0 {
		putNumber(m, semconv.GPUKernelBlocksPerSMKey, d.BlocksPerSM)
	}
	if d.WarpsPerSM != 0 {
		putNumber(m, semconv.GPUKernelWarpsPerSMKey, d.WarpsPerSM)
	}
}

func (s *spans) kernel(m pcommon.Map, a *link.Activity) {
	d := &a.Detail
	switch {
	case d.HasOccupancy:
		putNumber(m, semconv.GPUKernelOccupancyEstimateKey, d.Occupancy)
	case d.HasGrid && d.HasResources:
		if _, share, _ := s.limitsOf(a.Device).Waves(link.LaunchOf(d)); share > 0 {
			putNumber(m, semconv.GPUKernelOccupancyEstimateKey, share)
		}
	}
	if d.Graph != 0 {
		putInt(m, semconv.GPUGraphIDKey, d.Graph)
	}
	if d.GraphNode != 0 {
		putInt(m, semconv.GPUGraphNodeIDKey, d.GraphNode)
	}
}

func (s *spans) collective(m pcommon.Map, a *link.Activity) {
	d := &a.Detail
	name, size := s.p.Collective(a)
	putText(m, semconv.GPUCollectiveNameKey, name)
	algorithm, protocol := vocabulary.CollectiveAlgorithm(s.p.Names.Name(a.Name))
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
	if size > 0 {
		putInt(m, semconv.GPUIOSizeKey, size)
	}
}
