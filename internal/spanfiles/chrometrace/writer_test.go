// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace/chrometracetest"
	"github.com/otelgpu/otelgpu/internal/spanfiles/property"
)

const epoch = int64(1_700_000_000_123_456_789)

func stream(id int64) chrometrace.Track { return chrometrace.Track{Kind: chrometrace.Stream, ID: id} }

func host(thread int64) chrometrace.Track {
	return chrometrace.Track{Kind: chrometrace.Host, ID: thread}
}

func written(t require.TestingT, batches ...[]chrometrace.Event) (chrometracetest.File, chrometrace.Stats) {
	var b bytes.Buffer
	w := chrometrace.NewWriter(&b)
	for _, e := range batches {
		require.NoError(t, w.Write(e))
	}
	require.NoError(t, w.Close())
	f, faults := chrometracetest.Read(b.Bytes())
	require.Empty(t, faults, b.String())
	return f, w.Stats()
}

func TestTimesAreExactToTheNanosecond(t *testing.T) {
	f, _ := written(t, []chrometrace.Event{
		{Name: "a", Track: stream(7), Start: epoch, End: epoch + 1},
		{Name: "b", Track: stream(7), Start: epoch + 1, End: epoch + 3_600_000_000_007},
	})
	s := f.Slices()
	require.Equal(t, epoch, f.Base+s["a"].Time)
	require.Equal(t, int64(1), s["a"].Dur)
	require.Equal(t, epoch+1, f.Base+s["b"].Time)
	require.Equal(t, int64(3_600_000_000_006), s["b"].Dur)
	require.Zero(t, f.Base%int64(24*time.Hour), "the base is on the grid of days")
}

func TestAnySpansInAnyOrderNestOnEveryTrack(t *testing.T) {
	property.Check(t, func(t *property.T) {
		n := property.IntRange(1, 60).Draw(t, "n")
		events := make([]chrometrace.Event, n)
		for i := range events {
			start := epoch + property.Int64Range(0, 20).Draw(t, "start")
			events[i] = chrometrace.Event{
				Name: fmt.Sprint(i), Track: stream(property.Int64Range(0, 1).Draw(t, "stream")),
				Start: start, End: start + property.Int64Range(0, 10).Draw(t, "length"),
				Trace: [16]byte{byte(property.IntRange(1, 2).Draw(t, "trace"))},
			}
			if property.Bool().Draw(t, "host") {
				events[i].Track = host(property.Int64Range(-1, 1).Draw(t, "thread"))
				events[i].Span = [8]byte{byte(i + 1)}
				events[i].Correlation = property.Int64Range(0, 3).Draw(t, "launch")
			} else {
				events[i].Correlation = property.Int64Range(0, 3).Draw(t, "activity")
				events[i].Parent = [8]byte{byte(property.IntRange(0, n).Draw(t, "parent"))}
				events[i].Launched = start - property.Int64Range(0, 5).Draw(t, "delay")
			}
		}
		var batches [][]chrometrace.Event
		for rest := events; len(rest) > 0; {
			k := property.IntRange(1, len(rest)).Draw(t, "batch")
			batches, rest = append(batches, rest[:k]), rest[k:]
		}
		f, stats := written(t, batches...)
		require.Len(t, f.Slices(), n)
		require.EqualValues(t, n, stats.Events)
	})
}

func TestSpansThatNestStayOnOneTrack(t *testing.T) {
	// Children before parents, as SDKs export them.
	f, _ := written(t,
		[]chrometrace.Event{{Name: "inner", Track: stream(7), Start: epoch + 2, End: epoch + 3}},
		[]chrometrace.Event{{Name: "next", Track: stream(7), Start: epoch + 10, End: epoch + 20}},
		[]chrometrace.Event{{Name: "outer", Track: stream(7), Start: epoch, End: epoch + 10}},
		[]chrometrace.Event{{Name: "overlapping", Track: stream(7), Start: epoch + 5, End: epoch + 15}},
	)
	s := f.Slices()
	require.Equal(t, s["outer"].TID, s["inner"].TID)
	require.Equal(t, s["outer"].TID, s["next"].TID)
	require.NotEqual(t, s["outer"].TID, s["overlapping"].TID)
	require.ElementsMatch(t, []string{"GPU 0 stream 7", "GPU 0 stream 7 (2)"}, slices.Collect(maps.Values(f.Tracks())))
}

func TestConcurrentRequestsAreNotDrawnNested(t *testing.T) {
	f, _ := written(t, []chrometrace.Event{
		{Name: "request 1", Track: host(-1), Start: epoch, End: epoch + 100, Trace: [16]byte{1}},
		{Name: "request 2", Track: host(-1), Start: epoch + 10, End: epoch + 20, Trace: [16]byte{2}},
		{Name: "query of 1", Track: host(-1), Start: epoch + 12, End: epoch + 18, Trace: [16]byte{1}},
	})
	s := f.Slices()
	require.Equal(t, s["request 1"].TID, s["query of 1"].TID)
	require.NotEqual(t, s["request 1"].TID, s["request 2"].TID)
}

func TestArrowsJoinLaunchesAndWorkInAnyOrder(t *testing.T) {
	trace := [16]byte{9}
	launch := chrometrace.Event{
		Name: "cudaGraphLaunch", Track: host(11), Start: epoch, End: epoch + 10, Correlation: 5,
		Trace: trace, Span: [8]byte{1},
	}
	k1 := chrometrace.Event{Name: "k1", Track: stream(7), Start: epoch + 20, End: epoch + 30, Correlation: 5, Trace: trace}
	k2 := chrometrace.Event{Name: "k2", Track: stream(8), Start: epoch + 20, End: epoch + 30, Correlation: 5, Trace: trace}
	other := chrometrace.Event{
		Name: "other", Track: stream(8), Start: epoch + 40, End: epoch + 50, Correlation: 5,
		Trace: [16]byte{8},
	}
	for _, batches := range [][][]chrometrace.Event{
		{{launch, k1, k2, other}},
		{{k1}, {other}, {launch}, {k2}},
		{{k1, k2, other}, {launch}},
	} {
		f, stats := written(t, batches...)
		require.EqualValues(t, 2, stats.Flows, "of another trace the number means another launch")
		for _, r := range f.Events {
			if r.Ph == "s" {
				require.Equal(t, epoch, f.Base+r.Time)
			}
		}
	}
}

func TestArrowOfASectionLeavesItsParentAtTheLaunch(t *testing.T) {
	parent := chrometrace.Event{Name: "handler", Track: host(-1), Start: epoch, End: epoch + 1000, Span: [8]byte{1}}
	section := chrometrace.Event{
		Name: "prefill", Track: stream(0), Start: epoch + 500, End: epoch + 900,
		Parent: [8]byte{1}, Launched: epoch + 100,
	}
	f, stats := written(t, []chrometrace.Event{section}, []chrometrace.Event{parent})
	require.EqualValues(t, 1, stats.Flows)
	for _, r := range f.Events {
		if r.Ph == "s" {
			require.Equal(t, epoch+100, f.Base+r.Time)
			require.Equal(t, f.Slices()["handler"].TID, r.TID)
		}
	}
	section.Launched = epoch + 5000 // after the end of its parent and its own: no flow
	_, stats = written(t, []chrometrace.Event{parent, section})
	require.Zero(t, stats.Flows)
}

// A point describes the interval that ends at its time, but viewers draw a value from its time on.
func TestCountersAreDrawnOverTheirIntervals(t *testing.T) {
	var b bytes.Buffer
	w := chrometrace.NewWriter(&b)
	point := func(device, name string, start, end int64, v float64) chrometrace.Counter {
		if start > 0 {
			start += epoch
		}
		return chrometrace.Counter{
			Device: device, Label: "gpu0", Name: name, Unit: "W", Start: start, Time: epoch + end,
			Value: v,
		}
	}
	require.NoError(t, w.WriteCounters([]chrometrace.Counter{
		point("GPU-1", "power", 0, 1000, 300), point("GPU-2", "power", 500, 1000, 70),
		point("GPU-1", "power", 0, 1500, math.NaN()), point("GPU-1", "power", 0, 1500, math.Inf(1)),
	}))
	// both processes use the device
	for i, process := range []chrometrace.Process{{Service: "s", PID: 4711}, {Service: "t", PID: 4712}} {
		require.NoError(t, w.Write([]chrometrace.Event{{
			Name: "k", Process: process, Track: stream(7),
			Start: epoch + int64(i), End: epoch + 9, Device: "GPU-1",
		}}))
	}
	require.NoError(t, w.WriteCounters([]chrometrace.Counter{
		point("GPU-1", "power", 0, 2000, 310),
		point("GPU-1", "sm", 0, 2000, 0.5), point("GPU-1", "power", 0, 3000, 320),
	}))
	require.NoError(t, w.Close())
	f, faults := chrometracetest.Read(b.Bytes())
	require.Empty(t, faults)
	labels := map[int64]any{}
	for _, m := range f.Of("M") {
		if m.Name == "process_name" {
			labels[m.PID] = m.Args["name"]
		}
	}
	var got []string
	for _, r := range f.Of("C") {
		got = append(got, fmt.Sprint(labels[r.PID], " ", r.Name, " ", f.Base+r.Time-epoch, " ", r.Args["W"]))
	}
	require.Equal(t, []string{
		"device gpu0 GPU-1 power 1000 300", "device gpu0 GPU-2 power 500 70", "device gpu0 GPU-1 power 1000 310",
		"device gpu0 GPU-1 sm 2000 0.5", "device gpu0 GPU-1 power 2000 320",
	}, got)
}

func TestCountersThatCouldNotBeWrittenAreWrittenLater(t *testing.T) {
	w := &failing{n: 1}
	cw := chrometrace.NewWriter(w)
	points := []chrometrace.Counter{{Device: "GPU-1", Label: "gpu0", Name: "power", Unit: "W", Time: epoch, Value: 1}}
	require.Error(t, cw.WriteCounters(points))
	require.NoError(t, cw.WriteCounters(points))
	require.NoError(t, cw.Close())
	f, faults := chrometracetest.Read(w.Bytes())
	require.Empty(t, faults)
	require.Len(t, f.Of("C"), 1)
	require.EqualValues(t, 1, cw.Stats().Counters)
}

func TestEventsWithoutValidTimesAreCounted(t *testing.T) {
	f, stats := written(t, []chrometrace.Event{
		{Name: "unset", Start: 0, End: 5},
		{Name: "good", Start: epoch, End: epoch + 1},
		{Name: "backwards", Start: epoch + 9, End: epoch + 1},
		{Name: "next century", Start: epoch + 100*365*24*3600*1_000_000_000, End: math.MaxInt64},
		{Name: "before", Start: 5, End: 6},
	})
	require.Equal(t, chrometrace.Stats{Events: 2, NoTime: 3, Backwards: 1}, stats)
	require.Contains(t, f.Slices(), "good")
	f, stats = written(t, []chrometrace.Event{{Name: "good", Start: epoch, End: epoch + 1}},
		[]chrometrace.Event{
			{Name: "unset", End: 5},
			{Name: "backwards", Start: epoch + 9, End: epoch + 1},
			{Name: "far", Start: epoch + 1<<60, End: epoch + 1<<61},
		})
	require.Equal(t, chrometrace.Stats{Events: 2, NoTime: 2, Backwards: 1}, stats)
	require.Zero(t, f.Slices()["backwards"].Dur)
}

func TestNamesAndArgumentsOfAnyContentAreValidJSON(t *testing.T) {
	property.Check(t, func(t *property.T) {
		s := string(property.SliceOfN(anyByte, 0, 60).Draw(t, "bytes"))
		v := finite.Draw(t, "float")
		i := property.Int64Range(math.MinInt64, math.MaxInt64).Draw(t, "int")
		f, _ := written(t, []chrometrace.Event{{
			Name: s, Category: s, Track: chrometrace.Track{Kind: chrometrace.Host, ID: i, Name: s}, Start: epoch, End: epoch,
			Process: chrometrace.Process{Service: s, PID: i},
			Args: []chrometrace.Arg{
				{Key: "s" + s, Value: chrometrace.String(s)},
				{Key: "f", Value: chrometrace.Float(v)},
				{Key: "i", Value: chrometrace.Int(i)},
				{Key: "l", Value: chrometrace.List([]chrometrace.Value{
					chrometrace.Bool(true),
					chrometrace.Map([]string{s}, []chrometrace.Value{chrometrace.String(s)}),
				})},
				{Key: "nan", Value: chrometrace.Float(math.NaN())},
				{Key: "inf", Value: chrometrace.Float(math.Inf(-1))},
				{},
			},
			Marks: []chrometrace.Mark{{Name: s, Time: epoch}},
		}})
		args := f.Events[0].Args
		require.Equal(t, v, args["f"])
		require.Equal(t, "NaN", args["nan"])
		require.Equal(t, "-Infinity", args["inf"])
	})
}

func TestEmptyTraceIsValid(t *testing.T) {
	f, _ := written(t)
	require.Empty(t, f.Events)
}

// failing fails the nth Write.
type failing struct {
	bytes.Buffer
	n int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.n--; f.n == 0 {
		return 0, errors.New("no space left on device")
	}
	return f.Buffer.Write(p)
}

func TestBatchThatCannotBeWrittenMayBeRepeated(t *testing.T) {
	for n := 1; n <= 3; n++ {
		w := &failing{n: n}
		cw := chrometrace.NewWriter(w)
		for i := range 3 {
			batch := []chrometrace.Event{
				{
					Name: fmt.Sprint("launch ", i), Track: host(3), Start: epoch + int64(i*100), End: epoch + int64(i*100) + 10,
					Correlation: 1 + int64(i),
				},
				{
					Name: fmt.Sprint("kernel ", i), Track: stream(7), Start: epoch + int64(i*100) + 20, End: epoch + int64(i*100) + 40,
					Correlation: 1 + int64(i),
				},
			}
			if err := cw.Write(batch); err != nil {
				require.EqualError(t, err, "no space left on device")
				require.NoError(t, cw.Write(batch))
			}
		}
		require.NoError(t, cw.Close())
		f, faults := chrometracetest.Read(w.Bytes())
		require.Empty(t, faults, w.String())
		require.Len(t, f.Slices(), 6)
		require.EqualValues(t, 6, cw.Stats().Events)
		require.EqualValues(t, 3, cw.Stats().Flows)
	}
}

func TestMemoryIsBoundedOverManySpansInDisorder(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a million spans")
	}
	w := chrometrace.NewWriter(new(discard))
	r := rand.New(rand.NewPCG(1, 1))
	batch := make([]chrometrace.Event, 1000)
	for i := range 1000 {
		for j := range batch {
			start := epoch + int64(i*1000+j)*1000 - r.Int64N(100_000)
			batch[j] = chrometrace.Event{Name: "k", Track: stream(int64(j % 4)), Start: start, End: start + r.Int64N(3000)}
		}
		require.NoError(t, w.Write(batch))
	}
	require.EqualValues(t, 1_000_000, w.Stats().Events+w.Stats().Crowded)
	require.Zero(t, w.Stats().Crowded)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// With ten thousand processes and streams, free numbers are found without counting from one.
func TestManyTracksHaveUniqueNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 10_000
	var events []chrometrace.Event
	for i := range int64(n) {
		events = append(events,
			chrometrace.Event{
				Process: chrometrace.Process{Service: "a", PID: 1},
				Track:   chrometrace.Track{Kind: chrometrace.Stream, ID: i}, Start: epoch + i, End: epoch + i + 1,
			},
			chrometrace.Event{
				Process: chrometrace.Process{Service: strconv.FormatInt(i, 10), PID: 1},
				Track:   chrometrace.Track{Kind: chrometrace.Host, ID: -1}, Start: epoch + i, End: epoch + i + 1,
			})
	}
	var b bytes.Buffer
	w := chrometrace.NewWriter(&b)
	require.NoError(t, w.Write(events))
	require.NoError(t, w.Close())
	f, faults := chrometracetest.Read(b.Bytes())
	require.Empty(t, faults)
	require.Equal(t, 2*n, len(f.Tracks()))
	pids := map[int64]bool{}
	for _, r := range f.Of("X") {
		pids[r.PID] = true
		require.LessOrEqual(t, max(r.PID, r.TID), int64(n+1), "numbers without holes")
	}
	require.Equal(t, n+1, len(pids))
}

func TestProcessesAndTracksHaveBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var many []chrometrace.Event
	for i := range int64(1<<14 + 100) {
		many = append(many, chrometrace.Event{
			Process: chrometrace.Process{Service: "a", Instance: strconv.FormatInt(i, 10)}, Track: stream(1),
			Start: epoch + i*10, End: epoch + i*10 + 5,
			Trace: [16]byte{1}, Span: [8]byte{byte(i), byte(i >> 8)},
		})
	}
	f, stats := written(t, many)
	require.EqualValues(t, len(many), stats.Events)
	names := map[string]int{}
	for _, r := range f.Of("M") {
		if r.Name == "process_name" {
			names[r.Args["name"].(string)]++
		}
	}
	require.Equal(t, map[string]int{"a": 1 << 14, "further services": 1}, names)

	many = many[:0]
	for i := range int64(1<<16 + 100) {
		many = append(many, chrometrace.Event{Track: stream(i), Start: epoch + i*10, End: epoch + i*10 + 5})
	}
	f, stats = written(t, many)
	require.EqualValues(t, len(many), stats.Events)
	require.Equal(t, 1<<16+1, len(f.Tracks()))
	further := 0
	for _, name := range f.Tracks() {
		if name == "further tracks" {
			further++
		}
	}
	require.Equal(t, 1, further)
}

// A scope's stream, ordinal and model apply to its own device only. Names of arguments with another
// meaning do not hide attributes of these names, nor are they hidden.
func TestAttributesWithTheNamesOfArgumentsAreKept(t *testing.T) {
	e := chrometrace.Event{
		Name: "x", Start: epoch, End: epoch + 1, Trace: [16]byte{1}, Span: [8]byte{2}, Args: []chrometrace.Arg{
			{Key: "stream", Value: chrometrace.String("of water")},
			{Key: "span_id", Value: chrometrace.Int(9)},
			{Key: "gpu.operation.type", Value: chrometrace.String("kernel")},
			{Key: "gpu.stream.id", Value: chrometrace.Int(7)},
		},
		Marks: []chrometrace.Mark{{Name: "m", Time: epoch, Args: []chrometrace.Arg{{Key: "span_id", Value: chrometrace.Int(8)}}}},
	}
	e.Classify()
	f, _ := written(t, []chrometrace.Event{e})
	x := f.Slices()["x"]
	require.Equal(t, "of water", x.Args["attribute.stream"])
	require.EqualValues(t, 9, x.Args["attribute.span_id"])
	require.EqualValues(t, 7, x.Args["stream"])
	require.Equal(t, "0200000000000000", x.Args["span_id"])
	require.EqualValues(t, 8, f.Of("i")[0].Args["attribute.span_id"])
}

func TestASpanOfAnotherDeviceTakesNothingFromItsScope(t *testing.T) {
	scope := []chrometrace.Arg{
		{Key: "gpu.stream.id", Value: chrometrace.Int(3)},
		{Key: "hw.model", Value: chrometrace.String("H100")},
		{Key: "gpu.device.ordinal", Value: chrometrace.Int(2)},
		{Key: "hw.id", Value: chrometrace.String("GPU-aa")},
	}
	for id, same := range map[string]bool{"": true, "GPU-aa": true, "GPU-bb": false} {
		e := chrometrace.Event{Name: "gemm", Scope: scope, Args: []chrometrace.Arg{
			{Key: "gpu.operation.type", Value: chrometrace.String("kernel")},
		}}
		if id != "" {
			e.Args = append(e.Args, chrometrace.Arg{Key: "hw.id", Value: chrometrace.String(id)})
		}
		e.Classify()
		require.Equal(t, same, e.Track.ID == 3, id)
		require.Equal(t, same, e.Track.Device == 2, id)
		require.Equal(t, same, e.Model == "H100", id)
	}
}

// anyByte draws a byte, often one with a meaning in JSON or UTF-8.
var anyByte property.Gen[byte] = func(t *property.T) byte {
	const special = "\x00\n\"\\/<\x7f\x80\xbf\xc0\xe2\xf0\xff"
	if t.Rand.IntN(4) == 0 {
		return special[t.Rand.IntN(len(special))]
	}
	return byte(t.Rand.Uint64())
}

// finite draws a finite number, often an integer.
var finite property.Gen[float64] = func(t *property.T) float64 {
	for {
		v := math.Float64frombits(t.Rand.Uint64())
		switch t.Rand.IntN(4) {
		case 0:
			v = float64(t.Rand.IntN(21) - 10)
		case 1:
			v = t.Rand.NormFloat64()
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
	}
}
