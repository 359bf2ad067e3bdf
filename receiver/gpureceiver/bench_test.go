// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/cputime"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
)

// BenchmarkTakeSecond measures the receiver's work for one second of 8 GPUs × 20 quantities at 10
// Hz (1600 values): states, samples, rings.
func BenchmarkTakeSecond(b *testing.B) {
	cfg := createDefaultConfig().(*Config)
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(b, err)
	r.samples = devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	var devices []devicesamples.Device
	for i := range 8 {
		d := h100
		d.ID += string(rune('a' + i))
		devices = append(devices, d)
	}
	r.adopt(devices)
	batch := &gpudata.Batch{}
	now := time.Now().Add(-24 * time.Hour).UnixNano()
	second := func() {
		batch.Reset()
		for d := range devices {
			for q := range 20 {
				for i := range 10 {
					batch.Add(d, gpuquantity.Quantity(q), now+int64(i)*int64(100*time.Millisecond), 1)
				}
			}
		}
		now += int64(time.Second)
		r.take(batch)
	}
	for range 400 { // rings full
		second()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		second()
	}
}

// BenchmarkCollect measures one emission of the metrics of 8 GPUs.
func BenchmarkCollect(b *testing.B) {
	cfg := createDefaultConfig().(*Config)
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(b, err)
	var devices []devicesamples.Device
	for i := range 8 {
		d := h100
		d.ID += string(rune('a' + i))
		devices = append(devices, d)
	}
	r.adopt(devices)
	batch := &gpudata.Batch{}
	now := t0.UnixNano()
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		now += int64(time.Second)
		for d := range devices {
			for q := range gpuquantity.Num {
				batch.Add(d, gpuquantity.Quantity(q), now, 1)
			}
		}
		r.take(batch)
		_ = r.collect(t0)
	}
}

// BenchmarkProcesses measures a second of 8 GPUs with 200 processes, each of which has a control
// group on a real file system, at the default intervals, with metrics every second.
func BenchmarkProcesses(b *testing.B) {
	const boards, perBoard = 8, 25
	proc := b.TempDir()
	require.NoError(b, os.MkdirAll(filepath.Join(proc, "self/ns"), 0o755))
	require.NoError(b, os.Symlink("pid:[4026531836]", filepath.Join(proc, "self/ns/pid")))
	driver := &boardsOfProcesses{}
	devices := make([]devicesamples.Device, boards)
	for i := range devices {
		devices[i] = h100
		devices[i].ID, devices[i].Limits.Power = fmt.Sprintf("GPU-%d", i), 700
		use := gpudata.ProcessUse{Device: devices[i].ID, Reported: true}
		for k := range perBoard {
			pid := int64(1000 + perBoard*i + k)
			writeProcess(b, proc, pid, fmt.Sprintf("0::/kubepods/pod1015257a-1185-30c4-b0a0-%012d/%064d", pid, pid))
			use.Percent = append(use.Percent, gpudata.ProcessPercent{PID: pid, Percent: 4})
			use.Running = append(use.Running, gpudata.ProcessMemory{Device: use.Device, PID: pid, Bytes: 1 << 30})
		}
		driver.uses = append(driver.uses, use)
	}
	cfg := createDefaultConfig().(*Config)
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(b, err)
	r.nextMetrics = consumertest.NewNop()
	r.processes = processes.New(proc)
	samples := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	r.processReader = newProcessReader(cfg, r.processes, driver, samples, &r.operational, zap.NewNop())
	w := newProcessWriter(r)
	r.adopt(devices)
	now, joules := t0, 0.0
	second := func() {
		for range 4 {
			now, joules = now.Add(cfg.Processes.Interval), joules+100
			for _, d := range devices {
				r.processReader.meter.Value(d.ID, gpuquantity.Energy, now.UnixNano(), joules)
				r.processReader.meter.Value(d.ID, gpuquantity.Power, now.UnixNano(), 400)
			}
			driver.now = now.UnixNano()
			r.processReader.read(now)
		}
		w.prepare(context.Background(), now)
	}
	for range 300 { // until the memory no longer grows
		second()
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	used := cputime.Used()
	b.ReportAllocs()
	for b.Loop() {
		second()
	}
	b.ReportMetric(100*(cputime.Used()-used).Seconds()/float64(b.N), "%core")
	b.ReportMetric(float64(before.HeapAlloc)/(1<<20), "MiB-heap")
}

// boardsOfProcesses is a driver in which all processes are always busy.
type boardsOfProcesses struct {
	uses []gpudata.ProcessUse
	now  int64
}

func (*boardsOfProcesses) Open() error  { return nil }
func (*boardsOfProcesses) Close() error { return nil }
func (d *boardsOfProcesses) Read(func(string) int64, bool) ([]gpudata.ProcessUse, error) {
	for i := range d.uses {
		d.uses[i].Time = d.now
		for k := range d.uses[i].Percent {
			d.uses[i].Percent[k].Time = d.now
		}
	}
	return d.uses, nil
}
