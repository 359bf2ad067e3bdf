// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/otelgpu/otelgpu/semconv"
)

// Logs checks resources, scopes and log records, event names included.
func (r *Report) Logs(ld plog.Logs) {
	for i, rl := range ld.ResourceLogs().All() {
		r.attributes(rl.Resource().Attributes(), "resource", "resource", fmt.Sprintf("resource %d", i))
		for _, sl := range rl.ScopeLogs().All() {
			r.attributes(sl.Scope().Attributes(), "scope", "scope", fmt.Sprintf("scope %q", sl.Scope().Name()))
			for _, l := range sl.LogRecords().All() {
				r.record(l)
			}
		}
	}
}

func (r *Report) record(l plog.LogRecord) {
	r.Records++
	where := fmt.Sprintf("log record %q", l.EventName())
	r.attributes(l.Attributes(), "log", "log record", where)
	if !ours(l.EventName()) {
		return
	}
	e, ok := semconv.LookupEvent(l.EventName())
	if !ok {
		_, remedy := unknown(l.EventName(), eventNames())
		r.complain(where, where, "the event name is not in the registry", remedy)
		return
	}
	for _, name := range e.Required {
		if _, ok := l.Attributes().Get(name); !ok {
			r.complain(where, where, "has no "+name, "the registry requires it")
		}
	}
}
