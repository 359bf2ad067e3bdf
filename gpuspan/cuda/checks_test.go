// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/kernels"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// checks measure properties of a device that the documentation does not guarantee. Tests with the
// build tag `hardware` run them on a GPU. They always run on the stub, so that they work once a GPU
// is available.
type checks struct {
	*testing.T
	back     *cuda.Backend
	drv      *driver.Driver
	ctx      driver.Context
	stream   driver.Stream
	spin     driver.Function
	sms      uint32
	patience time.Duration // limit of the longer measurements
	print    io.Writer     // gets the results as Markdown
}

func (c *checks) row(what, format string, args ...any) {
	fmt.Fprintf(c.print, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
}

// all runs every check. The first one needs a process without a context; the order of the others
// does not matter.
func (c *checks) all() {
	c.noContextYet()
	c.open()
	c.identity()
	c.costs()
	c.elapsed()
	c.contexts()
	c.captures()
	c.probes("idle")
	stop := c.load()
	c.probes("under load")
	stop()
	c.clock()
	c.bubble()
	c.power()
	c.curve() // last: its profiler closes the backend
}

func (c *checks) noContextYet() {
	dev, err := c.drv.Device(0)
	require.NoError(c, err)
	onFreshThread(func() {
		require.NoError(c, c.back.ThreadInit())
		ctx, err := c.drv.Current()
		require.NoError(c, err)
		active, err := c.drv.PrimaryActive(dev)
		require.NoError(c, err)
		c.row("relaxed mode makes a context", "%v", ctx != 0 || active)
		require.False(c, active)
	})
}

func (c *checks) open() {
	dev, err := c.drv.Device(0)
	require.NoError(c, err)
	c.ctx, err = c.drv.RetainPrimary(dev)
	require.NoError(c, err)
	c.Cleanup(func() { _ = c.drv.ReleasePrimary(dev) })
	n, err := c.drv.Attribute(dev, driver.AttributeMultiprocessors)
	require.NoError(c, err)
	c.sms = uint32(n)
	require.NoError(c, c.drv.Do(c.ctx, func() (err error) {
		if c.stream, err = c.drv.NewStream(); err != nil {
			return err
		}
		m, err := c.drv.Load(kernels.PTX)
		if err != nil {
			return err
		}
		c.spin, err = c.drv.Function(m, "spin")
		return err
	}))
	_, err = c.back.StreamInfo(backend.StreamHandle(c.stream), 0)
	require.NoError(c, err)
}

func (c *checks) identity() {
	d, err := c.back.Devices()
	require.NoError(c, err)
	major, minor, err := c.drv.Version()
	require.NoError(c, err)
	require.Regexp(c, `^(GPU|MIG)-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$`, d[0].UUID)
	require.Regexp(c, `^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`, d[0].PCIBDF)
	require.Positive(c, d[0].MemoryTotal)
	c.row("device", "%s, %d SMs, %d GiB, driver %s, CUDA %d.%d, PCI %s", d[0].Model, c.sms, d[0].MemoryTotal>>30,
		d[0].DriverVersion, major, minor, d[0].PCIBDF)
}

func (c *checks) events(n int) []backend.Event {
	e := make([]backend.Event, n)
	require.Zero(c, c.back.NewEvents(0, e))
	c.Cleanup(func() { c.back.FreeEvents(0, e) })
	return e
}

func (c *checks) call(e backend.Event) *backend.Call {
	return &backend.Call{Args: [2]uintptr{uintptr(e), uintptr(c.stream)}}
}

func (c *checks) launch(d time.Duration, blocks uint32) {
	require.NoError(c, c.drv.Launch(c.spin, driver.Dim{X: blocks}, driver.Dim{X: 32}, 0, c.stream, uint64(d)))
}

func (c *checks) sync() { require.NoError(c, c.drv.SynchronizeStream(c.stream)) }

func (c *checks) costs() {
	e := c.events(2)
	a, b := c.call(e[0]), c.call(e[1])
	require.Zero(c, c.back.Record(a))
	require.Zero(c, c.back.Record(b))
	c.sync()
	for _, f := range []struct {
		name string
		f    func() backend.Status
	}{
		{"record", func() backend.Status { return c.back.Record(b) }},
		{"query", func() backend.Status { return c.back.Query(e[0]) }},
		{"capture check", func() backend.Status { _, st := c.back.Capturing(backend.StreamHandle(c.stream)); return st }},
		{"elapsed", func() backend.Status { c.back.Synchronize(e[1]); _, st := c.back.Elapsed(e[0], e[1]); return st }},
	} {
		const batches, each = 200, 20
		var v []float64
		for range batches {
			begin := time.Now()
			for range each {
				require.Zero(c, f.f(), f.name)
			}
			v = append(v, float64(time.Since(begin))/each)
			c.sync() // so that the queue does not fill
		}
		c.row("cost of "+f.name, "p50 %.0f ns, p99 %.0f ns", quantile(v, 0.5), quantile(v, 0.99))
	}
}

// elapsed measures the sign of reversed queries and the resolution of timestamps.
func (c *checks) elapsed() {
	const n = 400
	e := c.events(n)
	require.NoError(c, c.drv.Do(c.ctx, func() error {
		for i, x := range e {
			require.Zero(c, c.back.Record(c.call(x)))
			c.launch(time.Duration(2000+i*37), 1)
		}
		c.sync()
		return nil
	}))
	there, st := c.back.Elapsed(e[0], e[n-1])
	require.Zero(c, st)
	require.Positive(c, there)
	back, st := c.back.Elapsed(e[n-1], e[0])
	c.row("elapsed in the wrong order", "status %d, %.0f ns (right order %.0f ns)", st, back, there)
	var gaps []float64
	for i := 1; i < n; i++ {
		d, st := c.back.Elapsed(e[i-1], e[i])
		require.Zero(c, st)
		require.Positive(c, d)
		gaps = append(gaps, d)
	}
	tick := 0.0
	for _, candidate := range []float64{1024, 1000, 512, 500, 64, 32, 16, 8} {
		if !slices.ContainsFunc(gaps, func(g float64) bool {
			return math.Abs(math.Remainder(g, candidate)) > 1.5+g*0x1p-24 // a gap is rounded to a float32
		}) {
			tick = candidate
			break
		}
	}
	c.row("tick of stamps", "%.0f ns (0: finer than 8); gaps p50 %.0f, min %.0f ns", tick, quantile(gaps, 0.5),
		slices.Min(gaps))
	require.LessOrEqual(c, tick, 500.0, "coarser than the clock assumes")
}

func (c *checks) contexts() {
	e := c.events(1)
	onFreshThread(func() {
		st := c.back.Record(c.call(e[0]))
		c.row("record on a thread without context", "status %d", st)
	})
}

func (c *checks) captures() {
	begin := dl.Func(c.drv.Symbol("cuStreamBeginCapture_v2"))
	end := dl.Func(c.drv.Symbol("cuStreamEndCapture"))
	require.NotZero(c, begin)
	require.NotZero(c, end)
	e := c.events(1)
	graph := new(uintptr)
	try := func(prepare func() error) (poll backend.Status, capture int32) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.Zero(c, begin.Call(uintptr(c.stream), 0))
		on, st := c.back.Capturing(backend.StreamHandle(c.stream))
		require.Zero(c, st)
		require.True(c, on)
		onFreshThread(func() {
			require.NoError(c, prepare())
			poll = c.back.Query(e[0])
		})
		return poll, end.Call(uintptr(c.stream), dl.Address(graph))
	}
	poll, capture := try(c.back.ThreadInit)
	c.row("query in relaxed mode during a global capture", "status %d, capture ends with %d", poll, capture)
	require.Zero(c, poll)
	require.Zero(c, capture)
	poll, capture = try(func() error { return nil })
	c.row("the same without relaxed mode", "status %d, capture ends with %d", poll, capture)
}

// probes measures the width of an anchor's interval.
func (c *checks) probes(name string) {
	s, st := c.back.NewStream(0)
	require.Zero(c, st)
	defer c.back.FreeStream(0, s)
	e := c.events(1)
	probe := &backend.Call{Args: [2]uintptr{uintptr(e[0]), s}}
	var v []float64
	for range 500 {
		begin := time.Now()
		require.Zero(c, c.back.Record(probe))
		for c.back.Query(e[0]) == backend.StatusNotReady {
		}
		v = append(v, float64(time.Since(begin)))
		time.Sleep(200 * time.Microsecond)
	}
	c.row("probe "+name, "p1 %.1f, p50 %.1f, p99 %.1f µs", quantile(v, 0.01)/1e3, quantile(v, 0.5)/1e3,
		quantile(v, 0.99)/1e3)
}

// load keeps the whole device busy until the returned function is called.
func (c *checks) load() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.drv.Do(c.ctx, func() error {
			for {
				select {
				case <-done:
					return nil
				default:
				}
				for range 8 {
					if err := c.drv.Launch(c.spin, driver.Dim{X: 16 * c.sms}, driver.Dim{X: 256}, 0, c.stream,
						uint64(200*time.Microsecond)); err != nil {
						return err
					}
				}
				if err := c.drv.SynchronizeStream(c.stream); err != nil {
					return err
				}
			}
		})
	}()
	return func() { close(done); <-ended }
}

// clock takes anchors as gpuspan does.
func (c *checks) clock() {
	runtime.LockOSThread() // as the polling thread is, which keeps a context
	defer runtime.UnlockOSThread()
	a, st := clockmap.NewAnchorer(c.back, 0, clockmap.Defaults())
	require.Zero(c, st)
	defer a.Close()
	e := c.events(1)
	var half []float64
	begin, anchors, spent := time.Now(), 0, time.Duration(0)
	for time.Since(begin) < c.patience {
		t := time.Now()
		n := a.Made()
		wait, st := a.Maintain(true)
		require.Zero(c, st)
		if a.Made() != n {
			anchors++
			spent += time.Since(t)
		}
		submitted := time.Now()
		require.Zero(c, c.back.Record(c.call(e[0])))
		require.Zero(c, c.back.Synchronize(e[0]))
		stamps, ok := a.Read(e[0], e[0], 0, 0)
		require.True(c, ok)
		at := a.Place(&stamps)
		start, w := at.Start, at.HalfWidth
		require.GreaterOrEqual(c, start, a.Axis(submitted)-w, "placed before it was submitted")
		require.LessOrEqual(c, start, a.Axis(time.Now())+w, "placed after it was seen")
		if time.Since(begin) > min(5*time.Second, c.patience/2) {
			half = append(half, float64(w))
		}
		time.Sleep(min(wait, 20*time.Millisecond))
	}
	ppm, ok := a.Map().Drift()
	c.row("clock", "drift %.3f ppm (known: %v), half width p50 %.2f, p99 %.2f µs, %d anomalies, %.0f µs an anchor", ppm,
		ok,
		quantile(half, 0.5)/1e3, quantile(half, 0.99)/1e3, a.Map().Anomalies(),
		float64(spent.Microseconds())/float64(max(anchors, 1)))
}
