// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// envEngine names a real host engine, like the setting `endpoint`. The tests of this file then run
// against it, and tests with the stub are skipped. LD_LIBRARY_PATH must contain the engine's
// libdcgm.so.4.
const envEngine = "OTELGPU_DCGM_ENGINE"

// engine returns the engine and how long a test watches it: OTELGPU_DCGM_SECONDS, 15 by default.
func engine(t *testing.T) (target string, length time.Duration) {
	t.Helper()
	if target = os.Getenv(envEngine); target == "" {
		t.Skip("needs a host engine of DCGM, named by " + envEngine)
	}
	seconds, err := strconv.Atoi(os.Getenv("OTELGPU_DCGM_SECONDS"))
	if err != nil {
		seconds = 15
	}
	return target, time.Duration(seconds) * time.Second
}

// engineSource opens a source on the engine.
func engineSource(t *testing.T, target string, sampling time.Duration) *source {
	t.Helper()
	s := newSource(Settings{
		Target: target, Sampling: sampling, Slow: 2 * time.Second, KeepAge: 2 * time.Minute, MaxStaleness: time.Minute,
		Profiling: true,
	}, newClient())
	require.NoError(t, s.Open())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NotEmpty(t, s.Devices())
	return s
}

type series struct {
	device   int
	quantity gpuquantity.Quantity
}

// every lists the quantities that an undivided GPU with profiling has in each sample.
var every = []gpuquantity.Quantity{
	gpuquantity.Power, gpuquantity.Energy, gpuquantity.MemoryUsed, gpuquantity.SMUtilization, gpuquantity.SMOccupancy,
	gpuquantity.TensorUtilization, gpuquantity.DRAMUtilization, gpuquantity.PipeFP64, gpuquantity.PipeFP32, gpuquantity.PipeFP16,
	gpuquantity.PCIeTransmit, gpuquantity.PCIeReceive, gpuquantity.NVLinkTransmit, gpuquantity.NVLinkReceive,
}

// Two receivers watch one engine: each series has a point per interval of its receiver until the
// end.
func TestEngineSeriesContinueAtTheirReceiversRate(t *testing.T) {
	target, length := engine(t)
	samplings := []time.Duration{100 * time.Millisecond, time.Second}
	sources := make([]*source, len(samplings))
	points := make([]map[series][]int64, len(samplings))
	for k, sampling := range samplings {
		sources[k], points[k] = engineSource(t, target, sampling), map[series][]int64{}
	}
	begin := time.Now()
	for time.Since(begin) < length {
		time.Sleep(250 * time.Millisecond)
		for k, s := range sources {
			b := &gpudata.Batch{}
			require.NoError(t, s.Read(b))
			for _, v := range b.Values {
				x := series{int(v.Device), v.Quantity}
				points[k][x] = append(points[k][x], v.Time)
			}
		}
	}
	for k, s := range sources {
		sampling := samplings[k]
		for i, d := range s.Devices() {
			if d.Parent != "" {
				continue
			}
			for _, q := range every {
				times := points[k][series{i, q}]
				// The engine may be late under load, but misses at most one interval in ten.
				assert.GreaterOrEqual(t, len(times), int(length/sampling)*9/10, "%s of %s at %s", q, d.Name, sampling)
				if len(times) > 0 {
					last := time.Since(time.Unix(0, times[len(times)-1]))
					assert.Less(t, last, 3*sampling+5*time.Second, "%s of %s at %s has ended", q, d.Name, sampling)
				}
			}
		}
		t.Logf("%s: %d devices, %d series", sampling, len(s.Devices()), len(points[k]))
	}
}

// Opening and closing one receiver does not affect another.
func TestEngineClosingAReceiverDoesNotAffectOthers(t *testing.T) {
	target, _ := engine(t)
	s := engineSource(t, target, 100*time.Millisecond)
	for range 3 {
		other := newSource(s.set, newClient())
		require.NoError(t, other.Open())
		require.NoError(t, other.Read(&gpudata.Batch{}))
		require.NoError(t, other.Close())
		require.NoError(t, s.Read(&gpudata.Batch{}))
		time.Sleep(2 * time.Second)
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		for _, q := range every {
			assert.GreaterOrEqual(t, len(of(b, 0, q)), 15, q.String())
		}
	}
}

// envDevices names a command that changes the devices of the engine, whose driver is then a stub:
// "set BOARD lost=1" removes a board from the bus; "set BOARD mig=2" divides it into three GPU
// instances with four compute instances, mig=1 into two with three, mig=0.5 into none, and mig=0
// disables MIG; "xid BOARD CODE" reports an XID.
const envDevices = "OTELGPU_DCGM_DEVICES"

// control runs the command on the engine of the test.
func control(t *testing.T, args ...string) {
	t.Helper()
	command := strings.Fields(os.Getenv(envDevices))
	if len(command) == 0 {
		t.Skip("needs a command that changes the engine's devices, named by " + envDevices)
	}
	out, err := exec.Command(command[0], append(command[1:], args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// await reads until the result satisfies done, for at most a minute.
func await(t *testing.T, s *source, what string, done func(*gpudata.Batch) bool) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(250 * time.Millisecond) {
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		if done(b) {
			t.Logf("%s after %.1f s", what, time.Since(begin).Seconds())
			return
		}
	}
	require.Fail(t, "not within a minute", what)
}

func instancesOf(s *source) (list []string) {
	for _, d := range s.Devices() {
		if d.Parent != "" {
			list = append(list, d.ID)
		}
	}
	return list
}

// Instances that are created and removed while the receiver runs appear and disappear, each with
// its own UUID and profiling values, and the boards' series continue.
func TestEngineInstancesComeAndGo(t *testing.T) {
	target, _ := engine(t)
	control(t, "set", "0", "mig=0")
	defer control(t, "set", "0", "mig=0")
	s := engineSource(t, target, 100*time.Millisecond)
	known := map[string]string{} // name to UUID
	for _, step := range []struct {
		mig       string
		instances int
	}{{"2", 4}, {"1", 3}, {"0.5", 0}, {"2", 4}, {"0.5", 0}, {"1", 3}, {"0", 0}} {
		control(t, "set", "0", "mig="+step.mig)
		await(t, s, fmt.Sprintf("mig=%s: %d instances", step.mig, step.instances), func(*gpudata.Batch) bool {
			return len(instancesOf(s)) == step.instances
		})
		measured := map[int]bool{}
		await(t, s, "values of all", func(b *gpudata.Batch) bool {
			for _, v := range b.Values {
				measured[int(v.Device)] = measured[int(v.Device)] || v.Quantity == gpuquantity.SMUtilization
			}
			all := len(of(b, len(s.Devices())-1, gpuquantity.Power)) > 0 || step.instances > 0
			for i, d := range s.Devices() {
				divided := d.Name == "gpu0" && step.mig != "0"
				all = all && (measured[i] || divided)
			}
			return all
		})
		seen := map[string]bool{}
		for _, d := range s.Devices() {
			assert.False(t, seen[d.ID], "two devices are %s", d.ID)
			seen[d.ID] = true
			if before, ok := known[d.Name]; ok {
				assert.Equal(t, before, d.ID, "identity of %s at mig=%s", d.Name, step.mig)
			}
			known[d.Name] = d.ID
		}
	}
}

// A board that falls off the bus fails, the others continue, and the board is reported again once
// it is back. The XID of the failure is an event. An XID while the board is lost is not: the engine
// drops it, because the board then has no index (DcgmCacheManager::EventThreadMain), and reads such
// XIDs from /dev/kmsg only.
func TestEngineLosesAndRegainsAGPU(t *testing.T) {
	target, _ := engine(t)
	control(t, "set", "1", "lost=0")
	defer control(t, "set", "1", "lost=0")
	s := engineSource(t, target, 100*time.Millisecond)
	health := func(want gpudata.Health) func(*gpudata.Batch) bool {
		return func(b *gpudata.Batch) bool {
			require.GreaterOrEqual(t, len(b.Health), 2)
			return b.Health[1] == want
		}
	}
	await(t, s, "board 1 is ok", health(gpudata.HealthOK))
	control(t, "xid", "1", "79")
	control(t, "set", "1", "lost=1")
	var xids []int64
	failed := false
	await(t, s, "board 1 failed by XID 79", func(b *gpudata.Batch) bool {
		for _, e := range b.Events {
			assert.Equal(t, uint16(1), e.Device)
			xids = append(xids, e.Code)
		}
		failed = failed || health(gpudata.HealthFailed)(b)
		return failed && len(xids) > 0
	})
	assert.Equal(t, []int64{79}, xids)
	time.Sleep(2 * time.Second)
	b := &gpudata.Batch{}
	require.NoError(t, s.Read(b))
	time.Sleep(2 * time.Second)
	b = &gpudata.Batch{}
	require.NoError(t, s.Read(b))
	for _, q := range every {
		assert.GreaterOrEqual(t, len(of(b, 0, q)), 15, "%s of the other board", q)
	}
	control(t, "set", "1", "lost=0")
	await(t, s, "board 1 is back", health(gpudata.HealthOK))
	await(t, s, "board 1 has profiling values", func(b *gpudata.Batch) bool {
		return len(of(b, 1, gpuquantity.SMUtilization)) > 0
	})
}
