// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const after = int64(epoch) + int64(time.Hour)

// Every reader accepts a profile of hostile names, with the time of all spans.
func TestHostileNamesAndLabels(t *testing.T) {
	names := []string{
		`<img src=x onerror=alert(1)>`, strings.Repeat("x", 1<<20), "\xff\xfe broken", "", "a\x00b", "_ZN5aten4gemmIfEEvT_", "_Z" + strings.Repeat("N", 1<<16),
		strings.Repeat("<", 5000), "\u202egnp.exe", strings.Repeat("é", 1000),
	}
	td := ptrace.NewTraces()
	for i, name := range names {
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", name)
		rs.Resource().Attributes().PutStr("service.version", name)
		ss := rs.ScopeSpans().AppendEmpty().Spans()
		drawn{trace: i + 1, id: i + 1, name: name, device: 1, start: 10 * i, end: 10*i + 4, energy: 1}.write(ss)
		a := ss.At(0).Attributes()
		a.PutStr("gpu.operation.type", "kernel")
		a.PutStr("gpu.kernel.name", name)
		a.PutStr("gpu.operation.category", name)
		a.PutStr("hw.model", name)
		a.PutEmptySlice("gpu.throttle.reasons").AppendEmpty().SetStr(name)
		for k := range 2000 {
			a.PutStr(fmt.Sprint("label.", k, name[:min(10, len(name))]), name[:min(10, len(name))])
		}
	}
	b := New(Options{Window: time.Minute})
	b.Add(td, after)
	b.Resolve(after, true)
	list := b.Take(math.MaxInt64)
	require.EqualValues(t, 4000*len(names), Totals(list)[Time])
	var file bytes.Buffer
	require.NoError(t, WritePprof(&file, list, Energy))
	require.Less(t, file.Len(), 100_000)
	p, err := profile.Parse(&file)
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	var sum int64
	for _, s := range p.Sample {
		sum += s.Value[Time]
		require.LessOrEqual(t, len(s.Label), 8)
	}
	require.EqualValues(t, 4000*len(names), sum)
	out := Profiles(list, func(pcommon.InstrumentationScope) {})
	raw, err := pprofileotlp.NewExportRequestFromProfiles(out).MarshalProto()
	require.NoError(t, err)
	require.Less(t, len(raw), 200_000)
	for _, s := range out.Dictionary().StringTable().All() {
		require.True(t, utf8.ValidString(s), "%q", s)
		require.LessOrEqual(t, len(s), maxName+16)
	}
	for _, rp := range out.ResourceProfiles().All() {
		for _, v := range rp.Resource().Attributes().All() {
			require.True(t, utf8.ValidString(v.Str()))
		}
	}
}

// Impossible values do not reach a profile.
func TestValuesThatAreNoNumbersDoNotReachAProfile(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, 1e300} {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		for i := range 3 {
			drawn{trace: i + 1, id: i + 1, name: "a", device: 1, start: 10 * i, end: 10*i + 4, energy: 1}.write(ss)
			a := ss.At(i).Attributes()
			a.PutDouble("gpu.self_energy", v)
			a.PutDouble("gpu.energy", v)
			a.PutDouble("gpu.duration", v)
			a.PutDouble("gpu.start.delay", v)
		}
		drawn{trace: 9, id: 9, name: "b", device: 2, start: 0, end: 4, energy: 1}.write(ss)
		b := New(Options{Window: time.Minute})
		b.Add(td, after)
		b.Resolve(after, true)
		list := b.Take(math.MaxInt64)
		for _, total := range Totals(list) {
			require.False(t, math.IsNaN(total) || math.IsInf(total, 0) || total < 0, "%v: %v", v, Totals(list))
		}
		var sum [types]int64
		for _, s := range Pprof(list, Time).Sample {
			for i, x := range s.Value {
				require.GreaterOrEqual(t, x, int64(0), "%v", v)
				sum[i] += x
				require.GreaterOrEqual(t, sum[i], int64(0), "%v", v)
			}
		}
	}
}

// Devices beyond the limit never take time from each other.
func TestManyDevicesDoNotTakeTimeFromOneAnother(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := New(Options{Window: time.Hour, Repeats: -1})
	const n = 3 * maxDevices
	want := 0.0
	for i := 0; i < n; i += 100 {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		for k := i; k < i+100; k++ {
			for j, id := range []string{fmt.Sprint("GPU-p", k), fmt.Sprint("GPU-c", k)} {
				drawn{trace: k + 1, id: 2*k + j + 1, parent: j * (2*k + 1), name: "a", device: 1, start: 0, end: 10}.write(ss)
				ss.At(ss.Len()-1).Attributes().PutStr("hw.id", id)
				want += 10_000
			}
		}
		b.Add(td, after)
		b.Resolve(after, true)
	}
	require.Equal(t, want, Totals(b.Take(math.MaxInt64))[Time])
	require.LessOrEqual(t, len(b.devices), maxDevices)
}

// Spans with arbitrary clocks take bounded memory, and all of their time counts.
func TestSpansOfManyTimesAreInBoundedWindows(t *testing.T) {
	b := New(Options{Window: time.Minute, Repeats: -1})
	const n = 20_000
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		drawn{trace: i + 1, id: i + 1, name: "a", device: 1, start: -i * 60_000_000, end: -i*60_000_000 + 10}.write(ss)
	}
	b.Add(td, after)
	b.Resolve(after, true)
	require.LessOrEqual(t, len(b.windows), 2000)
	require.EqualValues(t, n*10_000, Totals(b.Take(math.MaxInt64))[Time])
}

// A clock that is set back does not keep spans waiting until it has caught up.
func TestClockSetBackDoesNotKeepSpansWaiting(t *testing.T) {
	b := New(Options{Window: time.Minute})
	td := ptrace.NewTraces()
	drawn{trace: 1, id: 1, parent: 7, name: "a", device: 1, start: 0, end: 10}.write(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans())
	b.Add(td, after)
	back := after - int64(30*time.Minute)
	b.Resolve(back, false)
	require.Equal(t, 1, b.Pending())
	b.Resolve(back+int64(time.Minute), false)
	require.Zero(t, b.Pending())
}
