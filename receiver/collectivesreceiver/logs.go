// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/flightrecorder"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/collectivesreceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// maxRecords bounds the log records that wait because the next component rejects them.
const maxRecords = 1000

// logs are the findings that are not delivered yet.
type logs struct {
	next    consumer.Logs
	version string
	waiting []plog.LogRecord
}

// add returns how many records were dropped for a new one, and the new one to complete.
func (l *logs) add(
	f *finding.Finding, severity plog.SeverityNumber, at, now time.Time,
) (rec plog.LogRecord, dropped int64) {
	rec = plog.NewLogRecord()
	rec.SetEventName(semconv.GPUFindingEventName)
	rec.SetSeverityNumber(severity)
	rec.SetSeverityText(severity.String())
	rec.SetTimestamp(pcommon.NewTimestampFromTime(at))
	rec.SetObservedTimestamp(pcommon.NewTimestampFromTime(now))
	rec.Body().SetStr(strings.Join(f.Chain, " -> "))
	f.Put(rec.Attributes())
	if l.next == nil {
		return rec, 0
	}
	if len(l.waiting) >= maxRecords {
		l.waiting = slices.Delete(l.waiting, 0, 1)
		dropped = 1
	}
	l.waiting = append(l.waiting, rec)
	return rec, dropped
}

// hang adds a hang, and returns its record as add does.
func (l *logs) hang(h *flightrecorder.Hang, now time.Time) (rec plog.LogRecord, dropped int64) {
	f, at := h.Finding(), h.Since
	if at.IsZero() {
		at = now
	}
	rec, dropped = l.add(&f, plog.SeverityNumberError, at, now)
	a := rec.Attributes()
	a.PutStr(string(semconv.GPUHangCauseKey), string(h.Cause))
	sharedcomponent.PutText(a, semconv.GPUCollectiveGroupNameKey, h.Group.String())
	sharedcomponent.PutText(a, semconv.GPUCollectiveNameKey, h.Operation)
	a.PutInt(string(semconv.GPUCollectiveSequenceKey), h.Sequence)
	if len(h.Ranks) == 1 {
		a.PutInt(string(semconv.GPUJobRankKey), int64(h.Ranks[0]))
	}
	return rec, dropped
}

// send delivers what waits. Records that are rejected permanently are dropped; others are kept until
// the next call. The final call sends them again for up to resend.DrainTimeout.
func (l *logs) send(ctx context.Context, final bool) (dropped int64, err error) {
	if len(l.waiting) == 0 {
		return 0, nil
	}
	ld := plog.NewLogs()
	sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
	sl.SetSchemaUrl(semconv.SchemaURL)
	sl.Scope().SetName(metadata.ScopeName)
	sl.Scope().SetVersion(l.version)
	for _, rec := range l.waiting {
		rec.CopyTo(sl.LogRecords().AppendEmpty())
	}
	if !final {
		err = l.next.ConsumeLogs(ctx, ld)
	} else {
		limited, cancel := context.WithTimeout(ctx, resend.DrainTimeout)
		err = resend.Copies(limited, ld, plog.NewLogs, l.next.ConsumeLogs)
		cancel()
	}
	if err != nil && !final && !resend.Permanent(err) {
		return 0, err
	}
	if err != nil {
		dropped = int64(len(l.waiting))
	}
	l.waiting = nil
	return dropped, err
}
