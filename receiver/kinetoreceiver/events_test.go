// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// A compressed file of some megabytes may contain any number of events; receivers reject it, and
// name the setting to change.
func TestFilesWithTooManyEventsAreRefused(t *testing.T) {
	var events []string
	for i := range 101 {
		events = append(events, fmt.Sprintf(
			`{"ph":"X","cat":"kernel","name":"k","ts":%d,"dur":5,"pid":0,"tid":7,"args":{"device":0,"stream":7}}`, 10*i))
	}
	read := func(events []string) error {
		_, err := Read(t.Context(), strings.NewReader(`{"traceEvents":[`+strings.Join(events, ",")+`]}`),
			Options{MaxEvents: 100}, func(context.Context, ptrace.Traces) error { return nil })
		return err
	}
	require.NoError(t, read(events[:100]))
	require.ErrorContains(t, read(events), "more than 100 events (set `max_events` higher, or to -1 for no limit)")
	require.Equal(t, 10_000_000, createDefaultConfig().(*Config).Spans.MaxEvents)
}
