// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// processes implements gpudata.ProcessSource. It has its own handle of the library, since it works
// together with every source of device values.
type processes struct {
	source  source // of which only the calls and the operational events are used
	batch   gpudata.Batch
	boards  []processBoard
	listed  time.Time // when the boards were
	buffer  []nvml.ProcessUtilizationSample
	uses    []gpudata.ProcessUse
	percent []gpudata.ProcessPercent
	// offset is added to the driver's times: 0 if they are times of day, otherwise the difference
	// of both clocks. Some drivers count from the start of the machine.
	offset int64
}

// processBoard is a physical GPU.
type processBoard struct {
	handle    any
	id        string
	instances []processInstance
	silent    bool // the driver does not report utilization by process
}

type processInstance struct {
	handle any
	id     string
}

// NewProcesses returns a source that reads the use of devices by processes from the library at a
// path, or the loader's if it is empty.
func NewProcesses(library string) gpudata.ProcessSource { return newProcesses(nvml.New(library)) }

func newProcesses(lib nvml.Library) *processes {
	return &processes{source: source{lib: lib, xids: map[string]float64{}}}
}

func (p *processes) Open() error {
	if err := p.source.initialize(); err != nil {
		return err
	}
	p.list()
	return nil
}

func (p *processes) Close() error {
	p.boards, p.source.units, p.source.devices = nil, nil, nil
	p.source.unwatch()
	_ = p.source.lib.Call("nvmlShutdown")
	return nil
}

// relist is the time after which changes of the boards and of their instances are read.
const relist = 10 * time.Second

func (p *processes) list() {
	p.boards, p.listed = p.boards[:0], time.Now()
	before := p.source.devices
	p.source.units, p.source.devices = nil, nil
	n, _ := p.source.number("nvmlDeviceGetCount_v2")
	for i := range int(n) {
		handle, ret := p.source.number("nvmlDeviceGetHandleByIndex_v2", i)
		if ret != nvml.Success {
			continue
		}
		b := processBoard{handle: nvml.Handle(handle)}
		if b.id, ret = p.source.text("nvmlDeviceGetUUID", b.handle); ret != nvml.Success {
			continue
		}
		board := unit{handle: b.handle}
		board.desc.ID = b.id
		for _, u := range p.source.instances(&board) {
			b.instances = append(b.instances, processInstance{u.handle, u.desc.ID})
		}
		p.boards = append(p.boards, b)
		p.source.units = append(p.source.units, &unit{handle: b.handle, instance: -1})
		p.source.devices = append(p.source.devices, devicesamples.Device{ID: b.id})
	}
	if !slices.EqualFunc(before, p.source.devices, func(x, y devicesamples.Device) bool { return x.ID == y.ID }) {
		p.source.watchEvents(false)
	}
}

func (p *processes) Read(since func(id string) int64, list bool) ([]gpudata.ProcessUse, error) {
	if time.Since(p.listed) >= relist {
		p.list()
	}
	p.uses, p.percent = p.uses[:0], p.percent[:0]
	p.batch.Reset()
	p.source.readEvents(&p.batch)
	for i := range p.boards {
		b := &p.boards[i]
		u := gpudata.ProcessUse{Device: b.id, Operational: p.source.faults.Operational}
		for _, e := range p.batch.Events {
			if int(e.Device) == i {
				u.Faults = append(u.Faults, e.Event)
			}
		}
		first := len(p.percent)
		u.Reported = p.utilization(b, since(b.id))
		u.Percent, u.Time = p.percent[first:len(p.percent):len(p.percent)], time.Now().UnixNano()
		if list {
			u.Running = p.running(u.Running, b.handle, b.id)
			for _, x := range b.instances {
				u.Running = p.running(u.Running, x.handle, x.id)
			}
		}
		p.uses = append(p.uses, u)
	}
	return p.uses, nil
}

const processUtilization = "nvmlDeviceGetProcessUtilization"

// mostSamples bounds an answer.
const mostSamples = 1 << 14

// utilization appends the utilization of the processes of a board after a time. It returns false if
// the driver does not report it.
func (p *processes) utilization(b *processBoard, since int64) bool {
	if b.silent || !p.source.lib.Has(processUtilization) {
		return false
	}
	seen := max(since-p.offset, 0) / 1000
	for n := max(len(p.buffer), 64); ; n *= 2 {
		if len(p.buffer) < n {
			p.buffer = make([]nvml.ProcessUtilizationSample, n)
		}
		count := uint64(n)
		switch ret := p.source.lib.Call(processUtilization, b.handle, &p.buffer[0], &count, int(seen)); ret {
		case nvml.Success:
			p.take(p.buffer[:min(int(count), n)])
			return true
		case nvml.ErrorNotFound:
			return true // no process was busy
		case nvml.ErrorInsufficientSize:
			if n >= mostSamples {
				return true
			}
		case nvml.ErrorNotSupported, nvml.ErrorNoPermission, nvml.ErrorFunctionNotFound, nvml.ErrorInvalidArgument:
			b.silent = true
			return false
		default:
			return true // for a moment; a lost board is reported by the source of its values
		}
	}
}

// otherClock is a difference of times that no delay explains.
const otherClock = 24 * time.Hour

func (p *processes) take(samples []nvml.ProcessUtilizationSample) {
	var newest int64
	for i := range samples {
		newest = max(newest, int64(samples[i].TimeStamp)*1000)
	}
	switch offset := time.Now().UnixNano() - newest; {
	case newest == 0 || time.Duration(offset).Abs() < otherClock:
		p.offset = 0
	case p.offset == 0 || offset < p.offset: // the smallest one has the shortest delay
		p.offset = offset
	}
	for i := range samples {
		s := &samples[i]
		p.percent = append(p.percent, gpudata.ProcessPercent{
			PID: int64(s.Pid), Time: int64(s.TimeStamp)*1000 + p.offset, Percent: s.SmUtil,
		})
	}
}

// contextLists are the functions that list processes with a context: the second one lists clients
// of MPS, which share the context of its server.
var contextLists = [...]string{
	"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
	"nvmlDeviceGetGraphicsRunningProcesses_v3",
}

// running appends the processes with a context on a device, each once.
func (p *processes) running(dst []gpudata.ProcessMemory, handle any, id string) []gpudata.ProcessMemory {
	first := len(dst)
	for _, function := range contextLists {
		if !p.source.lib.Has(function) {
			continue
		}
		list, ret := p.source.running(function, handle)
		if ret != nvml.Success {
			continue
		}
		for _, x := range list {
			m := gpudata.ProcessMemory{Device: id, PID: int64(x.Pid), Bytes: bytesOf(&x)}
			same := func(o gpudata.ProcessMemory) bool { return o.PID == m.PID }
			if x.Pid != 0 && !slices.ContainsFunc(dst[first:], same) {
				dst = append(dst, m)
			}
		}
	}
	return dst
}
