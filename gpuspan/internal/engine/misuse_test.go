// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/tree"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// A batch with one string that is no UTF-8 is refused whole by exporters and receivers.
func TestNothingThatIsNoUTF8IsOnASpan(t *testing.T) {
	const bad = "a\xff"
	list := []attribute.KeyValue{
		attribute.String("s", bad), attribute.StringSlice("l", []string{"ok", bad}), attribute.String("k\xfe", "v"),
	}
	b := newScripted()
	b.devices[0].Model = bad
	f := newBench(t, b, func(c *record.Config) { c.Attributes = list })
	s := f.p.Stream(3, bad)
	op := record.NewOperation(bad, func(c *record.OperationConfig) {
		c.Attributes = list
		c.Info.Category, c.Info.ItemType, c.Info.Description = bad, bad, bad
	})
	x := op.Start(context.Background(), s)
	x.SetAttributes(list...)
	x.EndWith(work.Work{Items: 1})
	for _, st := range f.p.Loop(bad, s, TotalSteps(1), func(c *tree.LoopConfig) {
		c.ItemType, c.Attributes = bad, list
	}).Steps(context.Background()) {
		st.SetAttributes(list...)
		st.SetItems(1)
		st.AddPhase(bad, 1)
	}
	f.flush(t)
	require.Len(t, f.spans.Ended(), 2)
	all := func(kv []attribute.KeyValue) {
		for _, a := range kv {
			require.True(t, utf8.ValidString(string(a.Key)), "%q", a.Key)
			require.True(t, utf8.ValidString(fmt.Sprint(a.Value.AsInterface())), "%q: %q", a.Key, a.Value.AsInterface())
		}
	}
	for _, x := range f.spans.Ended() {
		require.True(t, utf8.ValidString(x.Name()))
		all(x.Attributes())
		set := x.InstrumentationScope().Attributes
		all(set.ToSlice())
	}
}

// changed is the default settings but for what f changes.
func changed(f func(*settings.Settings)) Option {
	s := settings.Default()
	f(&s)
	return WithSettings(s)
}

// hung is a logger that does not come back.
type hung struct {
	slog.Handler
	in, out chan struct{}
	once    sync.Once
}

func (h *hung) Enabled(context.Context, slog.Level) bool { return true }
func (h *hung) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.in) })
	<-h.out
	return nil
}

func TestShutdownDoesNotWaitForALoggerThatHangs(t *testing.T) {
	b := newScripted()
	h := &hung{in: make(chan struct{}), out: make(chan struct{})}
	f := newBench(t, b, WithLogger(slog.New(h)), changed(func(s *settings.Settings) { s.HangLimit = time.Millisecond }))
	s := f.p.Stream(3, "x")
	b.query.Store(int32(backend.StatusNotReady))
	record.NewOperation("op").Start(context.Background(), s).End()
	<-h.in
	b.query.Store(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = f.p.Shutdown(ctx)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("Shutdown waits for the logger")
	}
	close(h.out)
	<-done
}

func TestTimesOfPhasesThatCannotBeAreMisuse(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "x")
	for _, st := range f.p.Loop("loop", s, TotalSteps(1)).Steps(context.Background()) {
		st.AddPhase("a", math.MaxInt64)
		st.AddPhase("a", math.MaxInt64)
		st.SetPhase("b", math.MaxInt64)
		st.AddPhaseAt("c", time.Time{}, 1)
		st.AddPhaseAt("c", time.Now(), math.MaxInt64)
	}
	f.flush(t)
	spans := f.spans.Ended()
	require.Len(t, spans, 1)
	for _, a := range spans[0].Attributes() {
		if a.Value.Type() == attribute.FLOAT64 {
			require.GreaterOrEqual(t, a.Value.AsFloat64(), 0.0, a.Key)
		}
		require.NotContains(t, string(a.Key), "phase")
	}
	require.EqualValues(t, 5, f.p.Misuse()["invalid_work"])
}

func TestContextsWithinContextsStayFlat(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "x")
	ctx, op := context.Background(), record.NewOperation("op")
	for range 1000 {
		x := op.Start(ctx, s)
		ctx = x.Context(ctx)
		x.End()
	}
	depth := 0
	for at := trace.SpanFromContext(ctx); ; depth++ {
		in, ok := at.(*record.SectionSpan)
		if !ok {
			break
		}
		at = in.Span
	}
	require.Equal(t, 1, depth)
}

// A program that ends on a signal often has nothing but the context that the signal has cancelled.
func TestShutdownWithACancelledContextFreesEverything(t *testing.T) {
	b := newScripted()
	f := newBench(t, b)
	s := f.p.Stream(3, "x")
	record.NewOperation("op").Start(context.Background(), s).End()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NotContains(t, fmt.Sprint(f.p.Shutdown(ctx)), "left behind")
	require.True(t, b.closed.Load())
	require.Empty(t, b.live)
	require.Len(t, f.spans.Ended(), 1)
}

func TestASecondShutdownKeepsItsOwnDeadline(t *testing.T) {
	b := newScripted()
	b.block = make(chan struct{})
	f := newBench(t, b)
	s := f.p.Stream(3, "x")
	b.blocks.Store(true)
	record.NewOperation("op").Start(context.Background(), s).End()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		first <- f.p.Shutdown(ctx)
	}()
	require.Eventually(t, f.p.Stopped.Load, time.Minute, time.Millisecond)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		second <- f.p.Shutdown(ctx)
	}()
	select {
	case err := <-second:
		require.ErrorContains(t, err, "another call")
	case <-time.After(20 * time.Second):
		t.Error("the second call waits for the first")
	}
	close(b.block)
	require.NoError(t, <-first)
	require.NoError(t, f.p.Shutdown(context.Background()))
}

// Everything at once from many goroutines: what was started is a span or counted, whatever comes in between.
func TestMisuseFromManyGoroutinesLosesNothing(t *testing.T) {
	b := newScripted()
	f := newBench(t, b, changed(func(s *settings.Settings) { s.Slots = 16 }))
	streams := []*record.Stream{f.p.Stream(3, "a"), f.p.Stream(4, "b"), f.p.Stream(4, "b"), f.p.Stream(5, "")}
	ops := []*record.Operation{record.NewOperation(""), record.NewOperation(strings.Repeat("n", 1<<20)), record.NewOperation("x", func(c *record.OperationConfig) { c.Batch = true })}
	var wg sync.WaitGroup
	shared := make(chan record.Section, 64)
	for g := range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			for i := range 200 {
				s := streams[(g+i)%len(streams)]
				x := ops[i%len(ops)].Start(ctx, s)
				select {
				case shared <- x:
				default:
				}
				x.Add(work.Work{Items: -1, FLOPs: math.NaN(), Read: math.MinInt64})
				for range i % 3 {
					x.Link(nil) //nolint:staticcheck // nil on purpose
				}
				y := x.Start(ops[(i+1)%len(ops)])
				x.End()
				y.EndWith(work.Work{Items: 1})
				y.End()
				select {
				case z := <-shared:
					z.End()
					z.Start(ops[0]).End()
					z.Chunk(-1, 3)
				default:
				}
				if i == 150 && g == 0 {
					streams[0].Close()
				}
				if i == 180 && g == 1 {
					_ = f.p.Shutdown(ctx)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.p.Flush(context.Background()))
	_ = f.p.Shutdown(context.Background())
	require.True(t, b.closed.Load())
	var statuses int64
	for i := range f.p.Statuses {
		statuses += f.p.Statuses[i].Load()
	}
	require.EqualValues(t, len(f.spans.Ended())+int(f.p.Drops[record.DropNestLimit].Load()), statuses)
}

// failing answers the n-th call with an error.
type failing struct {
	*scripted
	mu   sync.Mutex
	n    int
	left int
	how  string
}

func (b *failing) fails() backend.Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	if b.left--; b.left != 0 {
		return backend.StatusOK
	}
	if b.how == "panic" {
		panic("injected")
	}
	return backend.Status(700)
}

func either(a, b backend.Status) backend.Status {
	if a != backend.StatusOK {
		return a
	}
	return b
}

func (b *failing) Devices() ([]backend.Device, error) {
	if st := b.fails(); st != 0 {
		return nil, &backend.StatusError{Call: "x", Status: st}
	}
	return b.scripted.Devices()
}

func (b *failing) ThreadInit() error {
	if st := b.fails(); st != 0 {
		return &backend.StatusError{Call: "x", Status: st}
	}
	return nil
}

func (b *failing) Bind(d backend.Context) (func(), backend.Status) {
	if st := b.fails(); st != 0 {
		return nil, st
	}
	return b.scripted.Bind(d)
}

func (b *failing) Record(c *backend.Call) backend.Status {
	return either(b.fails(), b.scripted.Record(c))
}

func (b *failing) Query(e backend.Event) backend.Status {
	return either(b.fails(), b.scripted.Query(e))
}

func (b *failing) Synchronize(e backend.Event) backend.Status {
	return either(b.fails(), b.scripted.Synchronize(e))
}

func (b *failing) Elapsed(x, y backend.Event) (float64, backend.Status) {
	ms, st := b.scripted.Elapsed(x, y)
	return ms, either(b.fails(), st)
}

func (b *failing) StreamInfo(s backend.StreamHandle, c backend.Context) (backend.StreamInfo, error) {
	if st := b.fails(); st != 0 {
		return backend.StreamInfo{}, &backend.StatusError{Call: "x", Status: st}
	}
	return b.scripted.StreamInfo(s, c)
}

func (b *failing) NewStream(d backend.Context) (backend.StreamHandle, backend.Status) {
	h, st := b.scripted.NewStream(d)
	return h, either(b.fails(), st)
}

func (b *failing) NewEvents(d backend.Context, dst []backend.Event) backend.Status {
	if st := b.fails(); st != 0 {
		return st
	}
	return b.scripted.NewEvents(d, dst)
}

func (b *failing) Capturing(s backend.StreamHandle) (bool, backend.Status) {
	c, st := b.scripted.Capturing(s)
	return c, either(b.fails(), st)
}

func (b *failing) MemoryUsage(d backend.Context) (int64, backend.Status) {
	n, st := b.scripted.MemoryUsage(d)
	return n, either(b.fails(), st)
}

func (b *failing) Close() error {
	if st := b.fails(); st != 0 {
		return &backend.StatusError{Call: "x", Status: st}
	}
	return b.scripted.Close()
}

func TestAnyCallOfADriverMayFail(t *testing.T) {
	for _, how := range []string{"status", "panic"} {
		for n := 1; ; n++ {
			b := &failing{scripted: newScripted(), left: n, how: how}
			spans := tracetest.NewSpanRecorder()
			p, _ := New(b, WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
				WithErrorHandler(func(error) {}), WithLogger(slog.New(slog.DiscardHandler)),
				changed(func(s *settings.Settings) { s.MemoryUsage = true; s.Slots = 16 }))
			s := p.Stream(3, "x")
			op := record.NewOperation("op")
			for range 3 {
				x := op.Start(context.Background(), s)
				x.Start(op).End()
				x.End()
			}
			for _, st := range p.Loop("l", s, TotalSteps(2)).Steps(context.Background()) {
				st.Phase("a").End()
			}
			_ = p.Flush(context.Background())
			_ = p.Shutdown(context.Background())
			require.Len(t, spans.Ended(), 10, "%s at call %d", how, n)
			if how == "status" {
				require.Empty(t, b.live, "events at call %d", n)
			}
			if b.n < n {
				break
			}
		}
	}
}
