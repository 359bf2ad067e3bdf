// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// processor is a span processor that does what a test says at each end.
type processor struct{ onEnd func(sdktrace.ReadOnlySpan) }

func (processor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (p processor) OnEnd(s sdktrace.ReadOnlySpan)                 { p.onEnd(s) }
func (processor) Shutdown(context.Context) error                  { return nil }
func (processor) ForceFlush(context.Context) error                { return nil }

// A stream whose sections come faster than their spans can be made holds up nobody else. Each span takes 200 µs here,
// so 100 ms are 500 of them.
func TestAHotStreamDoesNotStarveOthers(t *testing.T) {
	const span, limit = 200 * time.Microsecond, 500
	var hot atomic.Int64
	others := make(chan int64, 100)
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor{func(s sdktrace.ReadOnlySpan) {
		for end := time.Now().Add(span); time.Now().Before(end); {
		}
		if s.Name() == "hot" {
			hot.Add(1)
			return
		}
		others <- hot.Load()
	}}))
	f := newBench(t, newScripted(), WithTracerProvider(tp))
	p := f.p
	s, calm := p.Stream(3, "hot"), p.Stream(4, "calm")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	op, other := record.NewOperation("hot"), record.NewOperation("calm")
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				for range 200 {
					op.Start(context.Background(), s).End()
				}
				time.Sleep(time.Millisecond)
			}
		}
	})
	// the hot stream's queue is full, and what does not fit is counted
	for hot.Load() < 2*limit || p.Drops[record.DropPoolFull].Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	anchors := func() (n int) {
		require.NoError(t, p.poller.Call(context.Background(), func() { n = p.DeviceList.All()[0].Anchorer.Made() }))
		return n
	}
	before, spans := anchors(), hot.Load()
	for range 5 {
		other.Start(context.Background(), calm).End()
		at := hot.Load() // not before: a goroutine that loses its CPU in between would count what passed meanwhile
		require.LessOrEqual(t, <-others-at, int64(limit), "spans of the hot stream before the other's")
	}
	for hot.Load() < spans+4*limit {
		time.Sleep(time.Millisecond)
	}
	require.GreaterOrEqual(t, anchors()-before, 4, "400 ms and more of spans: clocks keep their rhythm")
	require.True(t, p.Stream(5, "new").DeviceTimed(), "streams are registered")
	flush(t, p) // what had ended by then
	close(stop)
	wg.Wait()
	// As many spans wait again. Shutdown abandons in time the spans for which the test's code takes long; they would be
	// made while the next test runs.
	flush(t, p)
}

// What a span processor does in OnEnd, and be it nothing any more, holds up spans and nothing else.
func TestASpanProcessorThatHangsDelaysOnlySpans(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var spans atomic.Int64
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor{func(sdktrace.ReadOnlySpan) {
		once.Do(func() { close(hangs) })
		<-release
		spans.Add(1)
	}}))
	f := newBench(t, newScripted(), WithTracerProvider(tp))
	p := f.p
	s := p.Stream(3, "main")
	testOp.Start(context.Background(), s).End()
	p.Polling.Wake()
	<-hangs
	slots := int64(len(s.Slots))
	for ended := int64(1); ended < 4*slots; { // slots come back, as the sections are read
		x := testOp.Start(context.Background(), s)
		if x.Timed() {
			ended++
		}
		x.End()
	}
	d := p.DeviceList.All()[0]
	made := func() (n int) {
		require.NoError(t, p.poller.Call(context.Background(), func() { n = d.Anchorer.Made() }))
		return n
	}
	from := made()
	require.Eventually(t, func() bool { return made() >= from+5 }, time.Minute, time.Millisecond, "clocks keep their rhythm")
	require.True(t, p.Stream(5, "new").DeviceTimed(), "streams are registered")
	require.NotContains(t, f.errors(), "host times only")
	require.Zero(t, spans.Load())
	close(release)
	f.flush(t)
	require.GreaterOrEqual(t, spans.Load(), 4*slots)
}

// A stream that always has more to be read yields to goroutines that call after each of its turns.
func TestThoseWhoCallHaveTheirTurnWhileAStreamHasMore(t *testing.T) {
	set := settings.Default()
	set.Slots = settings.MaxSlots
	f := newBench(t, newScripted(), WithSettings(set))
	p := f.p
	s := p.Stream(3, "hot")
	read := func() uint64 {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		return s.Read
	}
	// Whether the second caller comes before all is read is the scheduler's matter, so it has some attempts.
	require.Eventually(t, func() bool {
		f.flush(t)
		var between uint64
		total := read() + record.MaxInFlight
		second := make(chan error, 1)
		require.NoError(t, p.poller.Call(context.Background(), func() {
			for range record.MaxInFlight {
				testOp.Start(context.Background(), s).End()
			}
			go func() { second <- p.poller.Call(context.Background(), func() { between = read() }) }()
			for range 1000 {
				runtime.Gosched()
			}
		}))
		require.NoError(t, <-second)
		return between < total
	}, time.Minute, time.Millisecond)
}

// Test helpers end the goroutine that they fail on.
func TestGoexitInASpanProcessorLosesNothingElse(t *testing.T) {
	var n atomic.Int64
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor{func(sdktrace.ReadOnlySpan) {
		if n.Add(1)%2 == 1 {
			runtime.Goexit()
		}
	}}))
	f := newBench(t, newScripted(), WithTracerProvider(tp))
	s := f.p.Stream(3, "main")
	for range 20 {
		x := testOp.Start(context.Background(), s)
		x.Start(testOp).End()
		x.End()
		for range f.p.Loop("train", s, TotalSteps(1)).Steps(context.Background()) {
		}
	}
	f.flush(t)
	require.GreaterOrEqual(t, n.Load(), int64(40))
	require.NoError(t, f.p.Shutdown(context.Background()))
	require.True(t, f.b.closed.Load())
}

// A step that waits for its sections is finished once, also when its span's end ends the goroutine.
func TestGoexitAtTheEndOfAStepFreesItsSlotOnce(t *testing.T) {
	var n atomic.Int64
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor{func(s sdktrace.ReadOnlySpan) {
		if s.Name() == "train" && n.Add(1) == 1 {
			runtime.Goexit()
		}
	}}))
	set := settings.Default()
	set.StepDeadline = time.Millisecond
	f := newBench(t, newScripted(), WithSettings(set), WithTracerProvider(tp))
	s, other := f.p.Stream(3, "main"), f.p.Stream(4, "other")
	var open record.Section
	for ctx := range f.p.Loop("train", s, TotalSteps(1)).Steps(context.Background()) {
		open = testOp.Start(ctx, other)
	}
	require.Eventually(t, func() bool {
		f.p.Snapshot()
		used, _ := s.Filled()
		return n.Load() == 1 && used <= 0
	}, time.Minute, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	open.End()
	f.flush(t)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	free := slices.Clone(s.Free)
	slices.Sort(free)
	require.Len(t, free, len(s.Slots))
	require.Len(t, slices.Compact(free), len(s.Slots), "each slot is free once")
}

// deafBackend hangs where a driver may hang when it is loaded.
type deafBackend struct {
	*scripted
	in    string
	until chan struct{}
}

func (b deafBackend) ThreadInit() error {
	if b.in == "ThreadInit" {
		<-b.until
	}
	return nil
}

func (b deafBackend) Devices() ([]backend.Device, error) {
	if b.in == "Devices" {
		<-b.until
	}
	return b.scripted.Devices()
}

func TestNewDoesNotWaitForADriverThatHangs(t *testing.T) {
	for _, in := range []string{"ThreadInit", "Devices"} {
		b := deafBackend{newScripted(), in, make(chan struct{})}
		p, err := New(b, func(c *record.Config) { c.OpenTimeout = 10 * time.Millisecond })
		require.ErrorContains(t, err, "the driver does not answer", in)
		s := p.Stream(3, "main")
		testOp.Start(context.Background(), s).End()
		require.False(t, s.DeviceTimed())
		require.NoError(t, p.Flush(context.Background()))
		require.NoError(t, p.Shutdown(context.Background()))
		close(b.until)
		require.Eventually(t, b.closed.Load, time.Minute, time.Millisecond,
			"the thread that was left behind frees what it got")
		require.Empty(t, p.Devices())
	}
}

// Whether the polling thread comes to ask the driver before the time is over, while it asks or after, is a matter of
// nanoseconds here.
func TestADriverThatAnswersTooLateIsClosedOnce(t *testing.T) {
	for range 200 {
		b := newScripted()
		p, err := New(b, func(c *record.Config) { c.OpenTimeout = time.Nanosecond })
		if err != nil {
			require.ErrorContains(t, err, "the driver does not answer")
		}
		require.NoError(t, p.Shutdown(context.Background()))
		require.Eventually(t, b.closed.Load, time.Minute, time.Millisecond)
		require.EqualValues(t, 1, b.closes.Load())
		if err != nil {
			require.Empty(t, p.Devices())
		}
	}
}

func TestForgottenEndsCostTheStreamNothingForLong(t *testing.T) {
	for _, limit := range []func(*settings.Settings){
		func(set *settings.Settings) { set.NestDeadline = time.Millisecond },
		func(set *settings.Settings) { set.OpenLimit = time.Millisecond },
	} {
		forgottenEnds(t, limit)
	}
}

func forgottenEnds(t *testing.T, limit func(*settings.Settings)) {
	set := settings.Default()
	set.Slots = 16
	limit(&set)
	f := newBench(t, newScripted(), WithSettings(set))
	s := f.p.Stream(3, "main")
	for range 16 {
		testOp.Start(context.Background(), s)
	}
	time.Sleep(2 * time.Millisecond)
	timed := 0
	for range 100 {
		x := testOp.Start(context.Background(), s)
		if x.Timed() {
			timed++
		}
		x.End()
		require.NoError(t, f.p.poller.Call(context.Background(), f.p.poller.Pass))
	}
	f.flush(t)
	require.GreaterOrEqual(t, timed, 95)
	require.EqualValues(t, 100-timed, f.p.Statuses[record.StatusTimeout].Load(), "each that was taken back is counted")
}

// A section of a device that hangs has a span, late and with host times, as a step has.
func TestASectionThatTheDeviceDoesNotFinishHasASpanAllTheSame(t *testing.T) {
	set := settings.Default()
	set.HangLimit, set.HangDeadline, set.NestDeadline = 0, 10*time.Millisecond, time.Millisecond
	f := newBench(t, newScripted(), WithSettings(set))
	s, hung := f.p.Stream(3, "main"), f.p.Stream(4, "hung")
	f.b.query.Store(int32(backend.StatusNotReady))
	testOp.Start(context.Background(), s).End()
	x := testOp.Start(context.Background(), s)
	x.StartOn(testOp, hung).End()
	x.End()
	time.Sleep(20 * time.Millisecond)
	f.tidy(t)
	f.tidy(t)
	require.Len(t, f.spans.Ended(), 3)
	for i := range 3 {
		status, source := f.status(i)
		require.Equal(t, "timeout", status)
		require.Equal(t, "host", source)
	}
	f.b.query.Store(int32(backend.StatusOK)) // the device comes back
	f.flush(t)
	f.tidy(t)
	require.Len(t, f.spans.Ended(), 3, "once")
	for _, s := range []*record.Stream{s, hung} {
		s.Mu.Lock()
		require.Len(t, s.Free, len(s.Slots))
		s.Mu.Unlock()
	}
}

func TestAStepOfTheWallClockBendsNoDifference(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	f.flush(t)
	f.p.Clock.Offset.Store(int64(10 * time.Minute)) // as after a step back while nothing ran
	testOp.Record(context.Background(), s, time.Time{}, time.Microsecond, work.Work{})
	host := record.NewOperation("host", Sync(settings.SyncNone))
	host.Start(context.Background(), s).End()
	testOp.Start(context.Background(), s).End()
	f.flush(t)
	for _, span := range f.spans.Ended() {
		require.WithinDuration(t, time.Now(), span.EndTime(), time.Minute, span.Name())
	}
}
