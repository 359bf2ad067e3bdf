// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/semconv"
)

// Identifiers are functions of the content, so that the same file gives the same trace however
// often, by whomever and under whatever name it is read. Where the job is known, ids of steps and
// windows are functions of job, rank and step instead, so that each rank can link to the others
// without having seen them.

type idSource struct{ a, b uint64 }

func idsOf(s *event.Store) idSource {
	times, names := s.Seed()
	return idSource{event.Mix(times), event.Mix(names + uint64(s.Meta.Rank))}
}

// jobIDs returns the source for a rank of a job.
func jobIDs(job string, rank int64) idSource {
	s := idSource{0xcbf29ce484222325, event.Mix(uint64(rank) + 0x9e3779b97f4a7c15)}
	for i := range len(job) {
		s.a = (s.a ^ uint64(job[i])) * 0x100000001b3
	}
	s.a = event.Mix(s.a)
	return s
}

func (s idSource) trace(kind byte, n int64) pcommon.TraceID {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], event.Mix(s.a^event.Mix(uint64(n)+uint64(kind)<<56)))
	binary.BigEndian.PutUint64(id[8:], event.Mix(s.b+event.Mix(uint64(n)^uint64(kind)<<48))|1)
	return id
}

func (s idSource) span(kind byte, n int64) pcommon.SpanID {
	var id [8]byte
	v := event.Mix(s.a + event.Mix(s.b^uint64(n)^uint64(kind)<<56))
	if v == 0 {
		v = 1
	}
	binary.BigEndian.PutUint64(id[:], v)
	return id
}

// Kinds of identifier.
const (
	idWindow     byte = 'w'
	idDevice     byte = 'd'
	idStep       byte = 's'
	idEvent      byte = 'e'
	idProjection byte = 'g'
)

// spanRef is a span of a trace.
type spanRef struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// spanLink connects a span with another that is not a request of a batch.
type spanLink struct {
	spanRef
	kind string // value of gpu.link.type
}

func (l spanLink) add(s ptrace.Span) {
	x := s.Links().AppendEmpty()
	x.SetTraceID(l.trace)
	x.SetSpanID(l.span)
	x.Attributes().PutStr(string(semconv.GPULinkTypeKey), l.kind)
}

// ParseTraceParent checks a W3C traceparent of version 00.
func ParseTraceParent(s string) error {
	_, err := parseTraceParent(s)
	return err
}

func parseTraceParent(s string) (spanRef, error) {
	var c spanRef
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return c, fmt.Errorf("traceparent %q is not of the form 00-<32 hex>-<16 hex>-<2 hex>", s)
	}
	if _, err := hex.Decode(c.trace[:], []byte(s[3:35])); err != nil {
		return c, fmt.Errorf("traceparent %q: %w", s, err)
	}
	if _, err := hex.Decode(c.span[:], []byte(s[36:52])); err != nil {
		return c, fmt.Errorf("traceparent %q: %w", s, err)
	}
	if c.trace.IsEmpty() || c.span.IsEmpty() {
		return c, fmt.Errorf("traceparent %q has an identifier of zeros only", s)
	}
	return c, nil
}
