// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// fakeSource is a source that the test controls.
type fakeSource struct {
	name string

	mu      sync.Mutex
	openErr error
	readErr error
	hang    chan struct{} // calls wait until it is closed
	hangs   string        // only this call hangs; empty: all calls
	open    bool
	calls   []string
	inCall  bool
	batch   gpudata.Batch
	devices []devicesamples.Device
}

func (f *fakeSource) call(op string) (*fakeSource, error) {
	f.mu.Lock()
	if f.inCall {
		panic("two calls of a source at once")
	}
	f.inCall = true
	hang := f.hang
	if f.hangs != "" && f.hangs != op {
		hang = nil
	}
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inCall = false
	f.calls = append(f.calls, op)
	switch op {
	case "open":
		if f.open {
			panic("opened twice")
		}
		f.open = f.openErr == nil
		return f, f.openErr
	case "read":
		return f, f.readErr
	default:
		f.open = false
		return f, nil
	}
}

func (f *fakeSource) Name() string                    { return f.name }
func (f *fakeSource) Devices() []devicesamples.Device { return f.devices }
func (f *fakeSource) Pace() time.Duration             { return time.Millisecond }
func (f *fakeSource) Open() error                     { _, err := f.call("open"); return err }
func (f *fakeSource) Close() error                    { _, err := f.call("close"); return err }
func (f *fakeSource) Read(b *gpudata.Batch) error {
	_, err := f.call("read")
	f.mu.Lock()
	defer f.mu.Unlock()
	b.Values = append(b.Values, f.batch.Values...)
	b.Events = append(b.Events, f.batch.Events...)
	b.Health = append(b.Health, f.batch.Health...)
	b.Changed = f.batch.Changed
	f.batch = gpudata.Batch{}
	return err
}

func (f *fakeSource) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

func (f *fakeSource) isOpen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// logHandler is a handler that records its calls, without repetitions.
type logHandler struct {
	mu    sync.Mutex
	lines []string
}

func (l *logHandler) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if n := len(l.lines); n == 0 || l.lines[n-1] != line {
		l.lines = append(l.lines, line)
	}
}

func (l *logHandler) opened(s string, _ []devicesamples.Device, skipped error) {
	if skipped != nil {
		s += " instead of " + skipped.Error()
	}
	l.add("opened %s", s)
}

func (l *logHandler) read(s string, _ []devicesamples.Device, _ *gpudata.Batch, _ time.Duration) {
	l.add("read %s", s)
}
func (l *logHandler) late(s, op string)                      { l.add("late %s %s", s, op) }
func (l *logHandler) lost(s string, err error)               { l.add("lost %s: %v", s, err) }
func (l *logHandler) unavailable(err error, _ time.Duration) { l.add("unavailable") }
func (l *logHandler) finished(s string)                      { l.add("finished %s", s) }

func (l *logHandler) has(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.lines, line)
}

// start runs an engine and returns a function that stops it and waits. If calls may hang, they are
// late after 50 ms.
func start(h handler, mayHang bool, sources ...gpudata.Source) (stop func() error) {
	e := &engine{
		callTimeout: time.Minute, retryMin: 5 * time.Millisecond, retryMax: 20 * time.Millisecond,
		handler: h,
	}
	if mayHang {
		e.callTimeout = 50 * time.Millisecond
	}
	for _, s := range sources {
		e.candidates = append(e.candidates, &candidate{src: s})
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

func eventually(t *testing.T, fn func() bool) {
	t.Helper()
	require.Eventually(t, fn, time.Minute, time.Millisecond)
}

func TestTheFirstSourceThatOpensIsRead(t *testing.T) {
	a, b, l := &fakeSource{name: "a", openErr: errors.New("no library")}, &fakeSource{name: "b"}, &logHandler{}
	stop := start(l, false, a, b)
	eventually(t, func() bool { return l.has("read b") })
	require.NoError(t, stop())
	assert.False(t, b.isOpen())
	assert.Equal(t, []string{"opened b instead of a: no library", "read b"}, l.lines)
	assert.Equal(t, "close", b.calls[len(b.calls)-1])
}

// A host engine often starts after the Collector, which reads NVML until then.
func TestABetterSourceIsTakenWhenItOpens(t *testing.T) {
	a, b, l := &fakeSource{name: "a", openErr: errors.New("refused")}, &fakeSource{name: "b"}, &logHandler{}
	stop := start(l, false, a, b)
	eventually(t, func() bool { return l.has("read b") })
	a.set(func() { a.openErr = nil })
	opens := func() (n int) {
		a.set(func() {
			for _, call := range a.calls {
				if call == "close" {
					n++
				}
			}
		})
		return n
	}
	eventually(t, func() bool { return opens() > 1 })
	assert.False(t, l.has("read a"), "without devices it is no better")
	hang := make(chan struct{})
	a.set(func() { a.devices, a.hang, a.hangs = []devicesamples.Device{{ID: "GPU-0"}}, hang, "open" })
	reads := func() (n int) {
		b.set(func() { n = len(b.calls) })
		return n
	}
	before := reads()
	eventually(t, func() bool { return reads() > before+50 })
	close(hang)
	eventually(t, func() bool { return l.has("read a") })
	assert.True(t, l.has("opened a"))
	assert.False(t, b.isOpen())
	a.set(func() { a.readErr, a.openErr = errors.New("connection reset"), errors.New("refused") })
	eventually(t, func() bool { return l.has("opened b instead of a: refused") })
	a.set(func() { a.readErr, a.openErr = nil, nil })
	eventually(t, a.isOpen)
	_ = stop()
	assert.False(t, a.isOpen())
	assert.False(t, b.isOpen())
	assert.NotContains(t, l.lines, "lost b: %!v(<nil>)")
}

func TestAHungSourceHoldsNeitherTheOthersNorShutdown(t *testing.T) {
	hang := make(chan struct{})
	a, b, l := &fakeSource{name: "a", hang: hang}, &fakeSource{name: "b"}, &logHandler{}
	stop := start(l, true, a, b)
	eventually(t, func() bool { return l.has("read b") })
	assert.True(t, l.has("late a open"))
	_ = stop() // it would wait for the call, which waits for the test
	// The call returns much later: what it opened is closed.
	close(hang)
	eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.calls) == 2
	})
	assert.Equal(t, []string{"open", "close"}, a.calls)
}

func TestAHungReadIsWaitedForAndShutdownIsNot(t *testing.T) {
	a, l := &fakeSource{name: "a"}, &logHandler{}
	stop := start(l, true, a)
	eventually(t, func() bool { return l.has("read a") })
	hang := make(chan struct{})
	a.set(func() { a.hang = hang })
	eventually(t, func() bool { return l.has("late a read") })
	a.set(func() { a.hang = nil })
	close(hang)
	eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.calls) > 5
	})
	again := make(chan struct{})
	a.set(func() { a.hang = again })
	time.Sleep(5 * time.Millisecond)
	_ = stop() // it would wait for the call, which waits for the test
	close(again)
	eventually(t, func() bool { return !a.isOpen() })
}

func TestShutdownDoesNotWaitForTheCallTimeout(t *testing.T) {
	for _, op := range []string{"read", "close"} {
		t.Run("of "+op, func(t *testing.T) {
			t.Parallel()
			hang := make(chan struct{})
			a, l := &fakeSource{name: "a"}, &logHandler{}
			e := &engine{
				callTimeout: time.Hour, retryMin: time.Millisecond, retryMax: time.Second, handler: l,
				candidates: []*candidate{{src: a}},
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- e.run(ctx) }()
			eventually(t, func() bool { return l.has("read a") })
			a.set(func() { a.hang, a.hangs = hang, op })
			if op == "read" {
				eventually(t, func() bool {
					a.mu.Lock()
					defer a.mu.Unlock()
					return a.inCall
				})
			}
			cancel()
			select {
			case err := <-done:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Error("it waits for the call")
			}
			close(hang)
			eventually(t, func() bool { return !a.isOpen() })
		})
	}
}

func TestALostSourceIsClosedAndOpenedAgain(t *testing.T) {
	a, l := &fakeSource{name: "a"}, &logHandler{}
	stop := start(l, false, a)
	eventually(t, func() bool { return l.has("read a") })
	a.set(func() { a.readErr, a.openErr = errors.New("connection reset"), errors.New("refused") })
	eventually(t, func() bool { return l.has("lost a: connection reset") })
	eventually(t, func() bool { return l.has("unavailable") })
	a.set(func() { a.readErr, a.openErr = nil, nil })
	eventually(t, a.isOpen)
	_ = stop()
	assert.False(t, a.isOpen())
}

func TestAFiniteSourceEnds(t *testing.T) {
	a, l := &fakeSource{name: "a", readErr: io.EOF}, &logHandler{}
	stop := start(l, false, a)
	eventually(t, func() bool { return l.has("finished a") })
	assert.ErrorIs(t, stop(), io.EOF)
	assert.False(t, a.isOpen())
	assert.Equal(t, []string{"opened a", "read a", "finished a"}, l.lines)
}
