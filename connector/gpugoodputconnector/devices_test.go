// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpugoodputconnector

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// samplesExtension is a store whose clock the test sets.
type samplesExtension struct {
	*devicesamples.Store
	component.StartFunc
	component.ShutdownFunc
}

// plantedUse is a process or a pod on a device, in seconds since the start.
type plantedUse struct {
	devicesamples.DeviceUse
	from, to int
}

// planted is what happens on devices in 600 s, of which the account is made.
type planted struct {
	uses   []plantedUse
	blind  [2]int // seconds in which no device is sampled
	spans  string // job with a step of 1 s on GPU-0 and GPU-1 in each second between
	stepsA int
	stepsB int
	shares map[int64]float64 // of the busy time, by PID: the windows of a device that several use
}

// run plays it, and returns the accounts at the end, with how long each device was busy in each
// second.
func (p *planted) run(t *testing.T) (got map[string]map[string]float64, busy [3][600]float64) {
	const devices, seconds = 3, 600
	start := time.Unix(1_790_000_000, 0)
	now := start
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), func() time.Time { return now })
	id := component.MustNewID("gpu_samples")
	c, sink, _ := newTest(t, func(c *Config) { c.Samples = &id })
	require.NoError(t, c.Start(t.Context(), host{id: samplesExtension{Store: store}}))
	rng := rand.New(rand.NewPCG(1, 2))
	for d := range devices {
		share := 0.0
		for s := range seconds {
			if s%7 == 0 { // kernels run for a while, at times only for a part of a second
				share = float64(rng.IntN(5)) / 4
			}
			busy[d][s] = share
		}
	}
	var writers [devices]devicesamples.DeviceWriter
	for d := range writers {
		var err error
		writers[d], err = store.Register(id, devicesamples.Device{ID: fmt.Sprint("GPU-", d), Interval: time.Second})
		require.NoError(t, err)
	}
	origin := devicesamples.UseOrigin{Owner: id}
	store.SetUses(origin, nil, 10*time.Second)
	for s := 1; s <= seconds; s++ {
		now = start.Add(time.Duration(s) * time.Second)
		for d, w := range writers {
			if s <= p.blind[0] || s > p.blind[1] {
				sample := devicesamples.Sample{Time: now.UnixNano()}
				sample.Set(devicesamples.Utilization, busy[d][s-1])
				w.Write([]devicesamples.Sample{sample})
			}
			if len(p.shares) > 0 && busy[d][s-1] > 0 {
				window := devicesamples.ShareWindow{From: now.Add(-time.Second).UnixNano(), To: now.UnixNano()}
				for i := range p.uses {
					u := &p.uses[i]
					window.Users = append(window.Users, devicesamples.DeviceShare{
						DeviceUse: &u.DeviceUse, Resident: busy[d][s-1] * p.shares[u.PID],
					})
				}
				store.AddShares(fmt.Sprint("GPU-", d), window)
			}
		}
		if s%10 == 0 {
			uses := []devicesamples.DeviceUse{}
			for _, u := range p.uses {
				if s >= u.from && s <= u.to {
					uses = append(uses, u.DeviceUse)
				}
			}
			store.SetUses(origin, uses, 10*time.Second)
		}
		if p.spans != "" && s > p.stepsA && s <= p.stepsB {
			for rank := range int64(2) {
				td := step(p.spans, rank, int64(s))
				rs := td.ResourceSpans().At(0)
				rs.Resource().Attributes().PutStr("hw.id", fmt.Sprint("GPU-", rank))
				span := rs.ScopeSpans().At(0).Spans().At(0)
				span.Attributes().Remove("gpu.step.phase.duration.data")
				span.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second)))
				span.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
				require.NoError(t, c.ConsumeTraces(t.Context(), td))
			}
		}
		if s%15 == 0 {
			c.flush(t.Context(), now, false)
		}
	}
	if all := sink.AllMetrics(); len(all) > 0 {
		got = account(t, all[len(all)-1])
	}
	for id, j := range c.jobs {
		total, wall := 0.0, float64(j.End-j.Start)/1e9
		for bucket, v := range got[id] {
			if bucket != "restarts" {
				total += v
			}
		}
		gpus := total / wall
		assert.InDelta(t, float64(int(gpus+0.5)), gpus, 1e-6, "%s: %v sum to whole GPUs", id, got[id])
	}
	require.NoError(t, c.Shutdown(t.Context()))
	return got, busy
}

// truth sums what devices did in a time.
func truth(busy [3][600]float64, from, to int, devices ...int) (b, idle float64) {
	for _, d := range devices {
		for s := from; s < to; s++ {
			b, idle = b+busy[d][s], idle+1-busy[d][s]
		}
	}
	return b, idle
}

// on returns the uses of a job by a process on each of several devices.
func on(job string, pid int64, from, to int, devices ...int) (uses []plantedUse) {
	for _, d := range devices {
		uses = append(uses, plantedUse{
			devicesamples.DeviceUse{Device: fmt.Sprint("GPU-", d), Job: job, PID: pid + int64(d)}, from, to,
		})
	}
	return uses
}

// within compares an account with planted busy and idle time. Uses are listed every 10 s, so that
// the beginning and the end of each use may be that far off.
func within(t *testing.T, got map[string]float64, busy, idle, unknown, off float64) {
	t.Helper()
	t.Logf("planted busy %.2f, idle %.2f, unknown %.2f; found %v", busy, idle, unknown, got)
	assert.InDelta(t, busy, got["busy"], off)
	assert.InDelta(t, idle, got["idle"], off)
	assert.InDelta(t, unknown, got["unknown"], off)
}

func TestJobsWithoutSpansHaveAnAccountOfTheirDevices(t *testing.T) {
	t.Run("one Slurm job", func(t *testing.T) {
		p := planted{uses: on("slurm-1", 10, 40, 400, 0, 1, 2)}
		got, truths := p.run(t)
		busy, idle := truth(truths, 30, 400, 0, 1, 2)
		require.Len(t, got, 1)
		within(t, got["slurm-1"], busy, idle, 0, 1e-3)
		assert.Len(t, got["slurm-1"], 3, "without spans, nothing else is known")
	})
	t.Run("a restart, and the next job on the same devices", func(t *testing.T) {
		p := planted{uses: append(append(on("slurm-1", 10, 40, 150, 0, 1), on("slurm-1", 20, 180, 300, 0, 1)...),
			on("slurm-2", 30, 330, 590, 0, 1)...)}
		got, truths := p.run(t)
		busy, idle := truth(truths, 30, 300, 0, 1)
		within(t, got["slurm-1"], busy, idle, 0, 1e-3)
		busy, idle = truth(truths, 320, 590, 0, 1)
		within(t, got["slurm-2"], busy, idle, 0, 1e-3)
	})
	t.Run("pods", func(t *testing.T) {
		p := planted{uses: []plantedUse{
			{devicesamples.DeviceUse{Device: "GPU-0", Namespace: "ml", Pod: "train-0", Container: "c"}, 100, 590},
			{devicesamples.DeviceUse{Device: "GPU-0", PID: 7, PodUID: "u", ContainerID: "c"}, 100, 590},
			{devicesamples.DeviceUse{Device: "GPU-1", Namespace: "ml", Pod: "train-1", Container: "c"}, 100, 590},
		}}
		got, truths := p.run(t)
		busy, idle := truth(truths, 90, 590, 0)
		within(t, got["ml/train-0"], busy, idle, 0, 1e-3)
		busy, idle = truth(truths, 90, 590, 1)
		within(t, got["ml/train-1"], busy, idle, 0, 1e-3)
	})
	t.Run("devices that are not sampled for a while", func(t *testing.T) {
		p := planted{uses: on("slurm-1", 10, 40, 400, 0), blind: [2]int{100, 200}}
		got, truths := p.run(t)
		busy, idle := truth(truths, 30, 100, 0)
		more, longer := truth(truths, 200, 400, 0)
		within(t, got["slurm-1"], busy+more, idle+longer, 100, 1)
	})
	t.Run("two jobs on one device", func(t *testing.T) {
		p := planted{
			uses:   append(on("slurm-1", 10, 100, 400, 0), on("slurm-2", 20, 100, 400, 0)...),
			shares: map[int64]float64{10: 0.75, 20: 0.25},
		}
		got, truths := p.run(t)
		busy, idle := truth(truths, 90, 400, 0)
		within(t, got["slurm-1"], 0.75*busy, idle+0.25*busy, 0, 1e-3)
		within(t, got["slurm-2"], 0.25*busy, idle+0.75*busy, 0, 1e-3)
	})
	t.Run("a device that unknown processes use, too", func(t *testing.T) {
		p := planted{uses: append(on("slurm-1", 10, 100, 400, 0), on("", 20, 100, 400, 0)...)}
		got, truths := p.run(t)
		idle := 0.0
		for _, b := range truths[0][90:400] {
			if b == 0 {
				idle++
			}
		}
		within(t, got["slurm-1"], 0, idle, 310-idle, 1e-3)
	})
	t.Run("nobody's devices", func(t *testing.T) {
		got, _ := (&planted{}).run(t)
		assert.Empty(t, got)
	})
}

// What the spans of a job leave open is filled by the activity of its devices, in one account.
func TestTheActivityOfDevicesFillsWhatSpansLeaveOpen(t *testing.T) {
	for _, x := range []struct{ name, use, spans string }{
		{"the same job", "job-7", "job-7"},
		{"a run in a Slurm job", "slurm-7", "slurm-7/node1:29500"},
		{"a trainer's own identity", "slurm-7", "0d5e3a"},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := planted{uses: on(x.use, 10, 40, 400, 0, 1), spans: x.spans, stepsA: 100, stepsB: 390}
			got, truths := p.run(t)
			require.Len(t, got, 1)
			busy, idle := truth(truths, 30, 100, 0, 1)
			after, longer := truth(truths, 390, 400, 0, 1)
			within(t, got[x.spans], busy+after, idle+longer, 0, 1e-3)
			assert.InDelta(t, 2*290, got[x.spans]["productive"], 1e-6)
		})
	}
	t.Run("devices that no use names", func(t *testing.T) {
		p := planted{spans: "0d5e3a", stepsA: 100, stepsB: 390}
		got, _ := p.run(t)
		within(t, got["0d5e3a"], 0, 0, 0, 1e-3)
		assert.InDelta(t, 2*290, got["0d5e3a"]["productive"], 1e-6, "the wall time is that of the spans")
	})
	t.Run("a device without a rank", func(t *testing.T) {
		p := planted{uses: on("slurm-7", 10, 40, 400, 0, 1, 2), spans: "slurm-7/node1:29500", stepsA: 100, stepsB: 390}
		got, truths := p.run(t)
		busy, idle := truth(truths, 30, 100, 0, 1)
		after, longer := truth(truths, 390, 400, 0, 1)
		spare, waiting := truth(truths, 30, 400, 2)
		within(t, got["slurm-7/node1:29500"], busy+after+spare, idle+longer+waiting, 0, 1e-3)
	})
}
