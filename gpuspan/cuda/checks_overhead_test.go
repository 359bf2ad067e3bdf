// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// bubble measures the device time that records between short kernels cost.
func (c *checks) bubble() {
	const n = 200
	e := c.events(2*n + 2)
	run := func(records bool) float64 {
		var best float64 = math.Inf(1)
		for range 20 {
			require.NoError(c, c.drv.Do(c.ctx, func() error {
				c.launch(2*time.Millisecond, 1) // lets the queue fill, so that the host is not the limit
				require.Zero(c, c.back.Record(c.call(e[2*n])))
				for i := range n {
					if records {
						require.Zero(c, c.back.Record(c.call(e[2*i])))
					}
					c.launch(10*time.Microsecond, 1)
					if records {
						require.Zero(c, c.back.Record(c.call(e[2*i+1])))
					}
				}
				require.Zero(c, c.back.Record(c.call(e[2*n+1])))
				c.sync()
				return nil
			}))
			d, st := c.back.Elapsed(e[2*n], e[2*n+1])
			require.Zero(c, st)
			best = min(best, d/n)
		}
		return best
	}
	bare, timed := run(false), run(true)
	c.row("two records around a kernel of 10 µs", "%.2f µs a kernel bare, %.2f µs with records: a bubble of %.0f ns",
		bare/1e3, timed/1e3, timed-bare)
}

// curve measures the overhead of sections relative to a plain loop.
func (c *checks) curve() {
	set := settings.Default()
	set.Slots = 4096
	prof, err := gpuspan.New(c.back, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider()), gpuspan.WithSettings(func(s *settings.Settings) { *s = set }),
		gpuspan.WithErrorHandler(func(error) {}))
	require.NoError(c, err)
	ctx := context.Background()
	defer func() { require.NoError(c, prof.Shutdown(ctx)) }()
	s := prof.Stream(uintptr(c.stream), "curve")
	require.True(c, s.DeviceTimed())
	op := gpuspan.NewOperation("kernel")
	for _, d := range []time.Duration{5, 10, 20, 50, 100, 200, 500, 1000} {
		d *= time.Microsecond
		n := max(int(c.patience/40/d), 5)
		n = min(n, 2000)
		measure := func(timed, each bool) float64 {
			best := math.Inf(1)
			for range 3 {
				require.NoError(c, c.drv.Do(c.ctx, func() error {
					begin := time.Now()
					for range n {
						if timed {
							x := op.Start(ctx, s)
							c.launch(d, 1)
							x.End()
						} else {
							c.launch(d, 1)
						}
						if each {
							c.sync()
						}
					}
					c.sync()
					best = min(best, float64(time.Since(begin))/float64(n))
					return nil
				}))
				require.NoError(c, prof.Flush(ctx))
			}
			return best
		}
		queued, queuedTimed := measure(false, false), measure(true, false)
		synced, syncedTimed := measure(false, true), measure(true, true)
		c.row(fmt.Sprintf("sections of %v", d),
			"queued %.2f µs bare, %+.2f µs (%+.1f %%); one at a time %.2f µs bare, %+.2f µs (%+.1f %%)",
			queued/1e3, (queuedTimed-queued)/1e3, 100*(queuedTimed/queued-1), synced/1e3, (syncedTimed-synced)/1e3,
			100*(syncedTimed/synced-1))
	}
	for _, d := range prof.Snapshot().Devices {
		c.row("floor: an empty section", "%v", d.Floor)
	}
}

// power reads the device's power state without and with anchors of an active device.
func (c *checks) power() {
	smi, err := exec.LookPath("nvidia-smi")
	if err != nil {
		c.row("power state", "no nvidia-smi here")
		return
	}
	state := func() string {
		out, err := exec.Command(smi, "--query-gpu=pstate,power.draw,clocks.sm", "--format=csv,noheader", "-i", "0").Output()
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(out))
	}
	time.Sleep(c.patience / 4)
	idle := state()
	a, st := clockmap.NewAnchorer(c.back, 0, clockmap.Defaults())
	require.Zero(c, st)
	defer a.Close()
	for begin := time.Now(); time.Since(begin) < c.patience/4; {
		wait, st := a.Maintain(true)
		require.Zero(c, st)
		time.Sleep(wait)
	}
	c.row("power state idle, then with anchors", "%s; %s", idle, state())
}
