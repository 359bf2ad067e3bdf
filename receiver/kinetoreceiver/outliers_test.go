// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const (
	year          = int64(365 * 24 * time.Hour)
	outlierReason = "time more than a day from all other events"
)

// loop returns a program whose device waits for its loader, from 1 ms on.
func loop() *machine {
	m := newMachine(1, styles()[0])
	m.steps(12, func(int) {
		m.load(3_000_000)
		m.layers(60, 200_000)
		m.wait("aten::item")
	})
	return m
}

func TestAnOutlyingEventIsNamedAndSkipped(t *testing.T) {
	for name, add := range map[string]func(m *machine){
		"kernel, a year later":   func(m *machine) { m.event("kernel", "odd", "0", "7", year, year+5000, `"device":0,"stream":7`) },
		"kernel, a year earlier": func(m *machine) { m.event("kernel", "odd", "0", "7", -year, -year+5000, `"device":0`) },
		"kernel, at 1e18 ns":     func(m *machine) { m.event("kernel", "odd", "0", "7", 1e18, 1e18, `"device":0`) },
		"kernel of 1e18 ns":      func(m *machine) { m.event("kernel", "odd", "0", "7", 5_000_000, 1e18, `"device":0`) },
		"call":                   func(m *machine) { m.event("cuda_runtime", "odd", "800", "4711", year, year+10, `"correlation":3`) },
		"operator of a year":     func(m *machine) { m.event("cpu_op", "odd", "800", "4711", 900_000, year, "") },
		"step":                   func(m *machine) { m.event("user_annotation", "ProfilerStep#99", "800", "4711", year, year+10, "") },
		"copy of a separate device": func(m *machine) {
			m.event("gpu_memcpy", "odd", "5", "7", -year, -year+5000, `"device":5,"bytes":10`)
		},
		"allocation": func(m *machine) {
			m.events = append(m.events, `{"ph":"i","name":"[memory]","pid":800,"tid":4711,"ts":31536000000000,`+
				`"args":{"Bytes":9,"Device Id":0,"Total Allocated":9}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := loop()
			_, want := convert(t, m.text(1), Options{Detail: DetailKernels})
			add(m)
			for _, detail := range []Detail{DetailSteps, DetailAuto, DetailKernels} {
				batches, got := convert(t, m.text(1), Options{Detail: detail})
				require.Len(t, got.Devices, 1)
				assert.Equal(t, want.Devices[0].Findings, got.Devices[0].Findings)
				assert.Equal(t, want.Devices[0].Parts, got.Devices[0].Parts)
				assert.Equal(t, want.Devices[0].Window, got.Devices[0].Window)
				checkReport(t, got.Devices[0])
				assert.Equal(t, map[string]int64{outlierReason: 1}, got.Skipped)
				require.Len(t, got.Faults, 1)
				assert.Contains(t, got.Faults[0], "is omitted")
				assert.Equal(t, want.Kernels+want.Copies+want.Steps, got.Kernels+got.Copies+got.Steps)
				first, last := extremes(batches)
				assert.Less(t, last-first, 10*time.Second)
			}
		})
	}
}

// The profiler's own record of its window has an invalid end.
func TestAnOutlyingWindowIsSkipped(t *testing.T) {
	m := loop()
	_, want := convert(t, m.text(1), Options{})
	m.event("Trace", "PyTorch Profiler (0)", `"Spans"`, `"PyTorch Profiler"`, 0, year, "")
	batches, got := convert(t, m.text(1), Options{})
	assert.Equal(t, want.Devices[0].Findings, got.Devices[0].Findings)
	assert.Equal(t, []string{"when the profiler recorded is omitted: that is more than a day from all events"}, got.Faults)
	first, last := extremes(batches)
	assert.Less(t, last-first, 10*time.Second)
}

// extremes returns the first start and the last end of all spans.
func extremes(batches []ptrace.Traces) (first, last time.Duration) {
	first = 1 << 62
	for _, s := range spansOf(batches) {
		first, last = min(first, time.Duration(s.StartTimestamp())), max(last, time.Duration(s.EndTimestamp()))
	}
	return first, last
}

// A program that pauses for an hour or for days and then continues is reported as idle.
func TestLongPausesAreIdleTime(t *testing.T) {
	for _, pause := range []time.Duration{time.Hour, 23 * time.Hour, 72 * time.Hour} {
		m := loop()
		m.within("cpu_op", "aten::index", func() { m.now += int64(pause) })
		m.layers(60, 200_000)
		_, st := convert(t, m.text(1), Options{})
		assert.Empty(t, st.Skipped, pause)
		assert.Empty(t, st.Faults)
		assert.GreaterOrEqual(t, st.Devices[0].Parts.Idle, pause)
		assert.Contains(t, strings.Join(st.Devices[0].Findings[0].Chain, " "), "aten::index", pause)
		checkReport(t, st.Devices[0])
	}
	// a kernel alone, within a day
	m := loop()
	m.now += int64(time.Hour)
	m.launch(work{name: "last", length: 1000, stream: 7})
	_, st := convert(t, m.text(1), Options{})
	assert.Empty(t, st.Skipped)
	assert.GreaterOrEqual(t, st.Devices[0].Parts.Idle, time.Hour)
}
