// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestReportCountsEachAndLogsTheFirstOfASourceAndReason(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	l := Ledger{Logger: zap.New(core), Now: func() time.Time { return time.UnixMilli(1700) }}
	frozen := Contradiction{Source: "dcgm", Device: "GPU-1", Reason: CounterFrozen, Found: "0 J", Other: "300 W"}
	l.Report(frozen)
	frozen.Device = "GPU-2"
	l.Report(frozen)
	frozen.Source = "nvml"
	l.Report(frozen)
	l.Report(Contradiction{Source: "dcgm", Reason: ClockOffset, Found: "3 s", Other: "0 s"})

	require.Len(t, logs.All(), 3)
	first := logs.All()[0]
	require.Contains(t, first.Message, CounterFrozen.Info().Compared)
	require.Contains(t, first.Message, CounterFrozen.Info().Remedy)
	require.Equal(t, map[string]any{
		"source": "dcgm", "reason": "counter_frozen", "hw.id": "GPU-1", "found": "0 J", "other": "300 W",
	}, first.ContextMap())

	got := l.Entries()
	require.Len(t, got, 3)
	require.Equal(t, "clock_offset", got[0].Reason)
	require.Equal(t, Entry{
		Source: "dcgm", Reason: "counter_frozen", Device: "GPU-2", Found: "0 J", Other: "300 W",
		Effect: CounterFrozen.Info().Effect, Remedy: CounterFrozen.Info().Remedy, Count: 2, Last: 1700,
	}, got[1])
	require.Equal(t, "nvml", got[2].Source)
}

func TestSourcesAreBounded(t *testing.T) {
	var l Ledger
	for i := range 2 * maxSources {
		l.Report(Contradiction{Source: fmt.Sprint("source ", i), Reason: ParentUnknown})
	}
	n := int64(0)
	for _, e := range l.Entries() {
		n += e.Count
	}
	require.LessOrEqual(t, len(l.sources), maxSources+1)
	require.EqualValues(t, 2*maxSources, n)
}

func TestEveryReasonIsDescribed(t *testing.T) {
	names := map[string]bool{}
	for r := range Reason(NumReasons) {
		i := r.Info()
		require.NotEmpty(t, i.Name)
		require.NotEmpty(t, i.Compared, i.Name)
		require.NotEmpty(t, i.Effect, i.Name)
		require.NotEmpty(t, i.Remedy, i.Name)
		require.False(t, names[i.Name], i.Name)
		names[i.Name] = true
	}
}
