// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"cmp"
	"context"
	"regexp"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// Types of NVTX events (column eventType).
const (
	nvtxCategory        = 33 // the name of a category
	nvtxMark            = 34
	nvtxThread          = 39 // the name of a thread
	nvtxStartEnd        = 60
	nvtxStartEndPayload = 71
	nvtxDomainCreate    = 75
	nvtxDomainDestroy   = 76
)

// Limits while ranges are read.
const (
	maxDomains    = 1 << 16
	maxCategories = 1 << 16
	maxMarks      = 1 << 18 // spans announced by marks, some 100 bytes each
)

// nvtx holds what rows other than ranges state about ranges.
type nvtx struct {
	domains    map[inDomain]string
	categories map[inCategory]string
	marks      map[spanKey]markedSpan
	startEnd   bool // the column endGlobalTid has the thread on which a start-end range ended
}

type inDomain struct{ process, domain int64 }

type inCategory struct {
	inDomain
	category int64
}

// spanKey identifies a span whose trace a mark of gpuspan/nvtx states.
type spanKey struct {
	process int64
	span    uint64
}

type markedSpan struct {
	parent  string // W3C
	step    int64
	hasStep bool
}

// ofMark reads the mark that gpuspan/nvtx writes before a range with the span's ID as its payload.
var ofMark = regexp.MustCompile(`^traceparent=00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?: step=(\d{1,18}))?$`)

// ranges reads NVTX. Push-pop ranges nest on their thread, and so do start-end ranges that ended on
// the thread on which they started; ranges that ended elsewhere may cross others, and have a
// separate row next to the thread.
func (c *collect) ranges(ctx context.Context) error {
	n := nvtx{
		domains: map[inDomain]string{}, categories: map[inCategory]string{}, marks: map[spanKey]markedSpan{},
		startEnd: c.db.lists(tableNVTX, "endGlobalTid"),
	}
	if err := c.nvtxNames(ctx, &n); err != nil {
		return err
	}
	return c.db.each(ctx, tableNVTX, []string{
		"start", "end", "eventType", "text", "textId", "globalTid", "domainId",
		"uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue", "jsonText", "jsonTextId",
		"category", "endGlobalTid",
	}, func(r []any) error {
		c.rows++
		kind := or(r[2], 0)
		switch kind {
		case nvtxCategory, nvtxThread, nvtxDomainCreate, nvtxDomainDestroy:
			return nil
		}
		text, err := c.first(r[3:5], "")
		if err != nil {
			return err
		}
		if r[1] == nil {
			if kind == nvtxMark && ofMark.MatchString(text) {
				return nil
			}
			c.p.Skip("NVTX mark or range without an end")
			return nil
		}
		var e event.Event
		if !c.times(&e, r[0], r[1]) {
			return nil
		}
		global := or(r[5], 0)
		e.Process, e.Thread = process(global), thread(global)
		if kind == nvtxStartEnd || kind == nvtxStartEndPayload {
			if end, ok := number(r[16]); !n.startEnd || ok && end != global {
				e.Thread = -1 - e.Thread
			}
		}
		in := inDomain{e.Process, or(r[6], 0)}
		e.Detail.Domain = n.domains[in]
		e.Detail.Category = n.categories[inCategory{in, or(r[15], 0)}]
		e.Detail.Payload = payload(r[7:13])
		if e.Detail.PayloadText, err = c.first(r[13:15], ""); err != nil {
			return err
		}
		name := cmp.Or(rangeOf(&e, text), "NVTX range")
		if id, ok := number(r[7]); ok {
			n.span(&e, uint64(id))
		}
		return c.add(&e, name)
	})
}

// nvtxNames reads the rows that name domains and categories, and the marks that state the trace of
// a span.
func (c *collect) nvtxNames(ctx context.Context, n *nvtx) error {
	return c.db.each(ctx, tableNVTX, []string{
		"eventType", "text", "textId", "domainId", "globalTid", "category",
		"uint64Value",
	}, func(r []any) error {
		kind := or(r[0], 0)
		if kind != nvtxDomainCreate && kind != nvtxCategory && kind != nvtxMark {
			return nil
		}
		if _, ok := number(r[6]); kind == nvtxMark && !ok {
			return nil
		}
		text, err := c.first(r[1:3], "")
		if err != nil {
			return err
		}
		in := inDomain{process(or(r[4], 0)), or(r[3], 0)}
		switch {
		case kind == nvtxDomainCreate && len(n.domains) < maxDomains:
			n.domains[in] = text
		case kind == nvtxCategory && len(n.categories) < maxCategories:
			n.categories[inCategory{in, or(r[5], 0)}] = text
		case kind == nvtxMark:
			if m := ofMark.FindStringSubmatch(text); m != nil {
				c.mark(n, in.process, m)
			}
		}
		return nil
	})
}

func (c *collect) mark(n *nvtx, process int64, m []string) {
	if len(n.marks) == maxMarks {
		c.p.Skip("trace of a range, beyond the number that is remembered")
		return
	}
	id, _ := strconv.ParseUint(m[2], 16, 64) // 16 digits
	s := markedSpan{parent: "00-" + m[1] + "-" + m[2] + "-01", hasStep: m[3] != ""}
	s.step, _ = strconv.ParseInt(m[3], 10, 64) // at most 18 digits
	n.marks[spanKey{process, id}] = s
}

// span makes the span whose ID a range carries its parent.
func (n *nvtx) span(e *event.Event, id uint64) {
	s, ok := n.marks[spanKey{e.Process, id}]
	if !ok || emit.ParseTraceParent(s.parent) != nil {
		return
	}
	e.Detail.TraceParent = s.parent
	if s.hasStep {
		e.Kind, e.Detail.Step, e.Detail.HasStep = event.KindStep, s.step, true
	}
}

// payload returns the number that a range carries, as text. SQLite has no unsigned numbers of 64
// bits: numbers of the first column are stored with the same bits.
func payload(columns []any) string {
	for i, v := range columns {
		switch n := v.(type) {
		case int64:
			if i == 0 {
				return strconv.FormatUint(uint64(n), 10)
			}
			return strconv.FormatInt(n, 10)
		case float64:
			return strconv.FormatFloat(n, 'g', -1, 64)
		}
	}
	return ""
}
