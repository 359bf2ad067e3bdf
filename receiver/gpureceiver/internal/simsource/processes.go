// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simsource

import (
	"fmt"
	"math"
	"time"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
)

// workload is a simulated process, which every device of the built-in load has.
type workload struct {
	pid      int64
	facts    processes.Facts
	resident [len(cycle)]float64 // share of the device's time, by phase
	memory   int64
}

// workloads are a training job, which has the device in the last phase, and a server. The rest of
// the first busy phase is of neither.
var workloads = [...]workload{
	{
		pid: 4711, memory: 40 << 30, resident: [len(cycle)]float64{0, 0, 0.7, 0.98},
		facts: processes.Facts{
			Executable: "python3", Owner: "alice", SlurmJob: "48213",
		},
	},
	{
		pid: 4712, memory: 16 << 30, resident: [len(cycle)]float64{0, 0.35, 0.3, 0},
		facts: processes.Facts{
			Executable: "VLLM::EngineCore", Owner: "bob", PodUID: "1015257a-1185-30c4-b0a0-17f5376fa02d",
			ContainerID: "48c2e87402936fc06891e3eda56b154fb5b7964f0c6ec332747d50146bc35ac0",
			Container:   processes.Container{Namespace: "serve", Pod: "infer-a", Name: "vllm"},
		},
	},
}

// Processes returns the source of the processes of the built-in load.
func Processes(n int, seed uint64, now func() time.Time) gpudata.ProcessSource {
	p := &processSource{now: now}
	for _, d := range Loads(n, seed, now) {
		l := d.(*load)
		p.loads, p.ids = append(p.loads, l), append(p.ids, l.Describe().ID)
	}
	return p
}

type processSource struct {
	now   func() time.Time
	loads []*load
	ids   []string
}

func (*processSource) Open() error  { return nil }
func (*processSource) Close() error { return nil }

// measured is the period of the driver's measurements.
const measured = 200 * time.Millisecond

// Read answers like a driver: a process has one average of all measurements since a time, in whole
// percent, and none if that is 0.
func (p *processSource) Read(since func(id string) int64, list bool) ([]gpudata.ProcessUse, error) {
	now := p.now()
	to := now.Truncate(measured)
	uses := make([]gpudata.ProcessUse, len(p.loads))
	for i, l := range p.loads {
		u := gpudata.ProcessUse{Device: p.ids[i], Time: now.UnixNano(), Reported: true}
		from := time.Unix(0, since(u.Device)).Truncate(measured)
		if oldest := to.Add(-10 * time.Second); from.Before(oldest) {
			from = oldest
		}
		for k := range workloads {
			w := &workloads[k]
			pid := w.pid + int64(10*i)
			if seconds := to.Sub(from).Seconds(); seconds > 0 {
				resident := func(at time.Time) float64 {
					return l.integrate(at, func(phase int) float64 { return w.resident[phase] })
				}
				share := (resident(to) - resident(from)) / seconds
				if percent := uint32(math.Round(100 * share)); percent > 0 {
					u.Percent = append(u.Percent, gpudata.ProcessPercent{PID: pid, Time: to.UnixNano(), Percent: percent})
				}
			}
			if list {
				facts := w.facts
				if facts.ContainerID != "" {
					facts.ContainerID = fmt.Sprintf("%s%02x", facts.ContainerID[:62], i)
				}
				u.Running = append(u.Running, gpudata.ProcessMemory{Device: u.Device, PID: pid, Bytes: w.memory, Facts: &facts})
			}
		}
		uses[i] = u
	}
	return uses, nil
}
