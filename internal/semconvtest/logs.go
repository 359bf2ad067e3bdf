// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconvtest

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/otelgpu/otelgpu/semconv"
)

// CheckLogs returns every deviation from the registry in resources, scopes and log records, event names included,
// joined; nil when there is none.
func CheckLogs(ld plog.Logs) error {
	var errs []error
	for i, rl := range ld.ResourceLogs().All() {
		errs = append(errs, checkAttributes(rl.Resource().Attributes(), "resource", fmt.Sprintf("resource %d", i)))
		for _, sl := range rl.ScopeLogs().All() {
			errs = append(errs, checkAttributes(sl.Scope().Attributes(), "scope", fmt.Sprintf("scope %q", sl.Scope().Name())))
			for _, r := range sl.LogRecords().All() {
				where := fmt.Sprintf("log record %q", r.EventName())
				errs = append(errs, checkAttributes(r.Attributes(), "log", where))
				if _, ok := semconv.LookupEvent(r.EventName()); ours(r.EventName()) && !ok {
					errs = append(errs, fmt.Errorf("%s: the event name is not in the registry", where))
				}
			}
		}
	}
	return errors.Join(errs...)
}
