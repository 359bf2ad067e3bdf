// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/incidents"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// source implements gpudata.Source.
type source struct {
	set     Settings
	lib     nvml.Library
	devices []devicesamples.Device
	units   []*unit
	slow    time.Time // of the last slow round
	events  nvml.Handle
	faults  incidents.Pairs
	xids    map[string]float64 // by device ID, since Open

	// ordinals of boards by UUID, which outlive Close: a name means the same board for as long as
	// the Collector runs.
	ordinals map[string]int

	// Of the present call.
	args    [8]any
	results [4]uint64
	field   nvml.FieldValue
	memory  nvml.MemoryV2
}

// New returns the source.
func New(set Settings) gpudata.Source { return newSource(set, nvml.New(set.Library)) }

func newSource(set Settings, lib nvml.Library) *source { return &source{set: set, lib: lib} }

func (*source) Name() string { return "nvml" }

func (s *source) Pace() time.Duration { return s.set.Sampling }

func (s *source) Devices() []devicesamples.Device { return s.devices }

// initialize loads the library.
func (s *source) initialize() error {
	switch ret := s.lib.Init(); ret {
	case nvml.Success:
		return nil
	case nvml.ErrorLibraryNotFound:
		return fmt.Errorf("NVML library not found (install the NVIDIA driver): %w", gpudata.ErrUnavailable)
	case nvml.ErrorDriverNotLoaded:
		return fmt.Errorf("NVIDIA driver not loaded: %w", gpudata.ErrUnavailable)
	default:
		return s.fail("nvmlInit", ret)
	}
}

func (s *source) Open() error {
	if err := s.initialize(); err != nil {
		return err
	}
	s.xids, s.slow = map[string]float64{}, time.Time{}
	if _, err := s.discover(); err != nil {
		_ = s.Close()
		return err
	}
	s.watchEvents(true)
	return nil
}

func (s *source) Close() error {
	s.closeUnits()
	s.unwatch()
	s.units, s.devices = nil, nil
	if ret := s.lib.Call("nvmlShutdown"); ret != nvml.Success {
		return s.fail("nvmlShutdown", ret)
	}
	return nil
}

func (s *source) closeUnits() {
	for _, u := range s.units {
		u.gpm.close()
	}
}

func (s *source) fail(call string, ret nvml.Return) error {
	return fmt.Errorf("%s: %s", call, s.lib.ErrorString(ret))
}

func (s *source) Read(b *gpudata.Batch) error {
	round := time.Since(s.slow) >= s.set.Slow
	if round {
		s.slow = time.Now()
		changed, err := s.discover()
		if err != nil {
			return err
		}
		if changed {
			b.Changed = true
			s.watchEvents(true)
		}
	}
	if round && s.set.Processes {
		b.Listed = time.Now().UnixNano() // unless a device does not report it
	}
	lost := false // of the board
	for i, u := range s.units {
		s.readUnit(b, i, u, round)
		if u.mig() {
			u.lost = u.lost || lost
		} else {
			lost = u.lost
		}
		health := u.condition.Health()
		if u.lost {
			health = gpudata.HealthFailed
		}
		b.Health = append(b.Health, health)
	}
	s.readEvents(b)
	s.notices(b)
	return nil
}

// notices reports the quantities that a device gave before and that the driver no longer permits to
// read.
func (s *source) notices(b *gpudata.Batch) {
	for _, u := range s.units {
		var names []string
		for q, denied := range u.denied {
			if denied {
				names = append(names, gpuquantity.Quantity(q).String())
			}
		}
		if len(names) > 0 {
			b.Notices = append(b.Notices, gpudata.Notice{
				Kind: gpudata.NoticePermission, Devices: []string{u.desc.Name},
				Err: fmt.Errorf("NVML denies %s (run the Collector with the rights that it had before)", strings.Join(names, ", ")),
			})
		}
	}
}

func (s *source) readUnit(b *gpudata.Batch, i int, u *unit, round bool) {
	u.lost = false
	if round {
		for q, gave := range u.gave {
			u.unsupported[q] = u.unsupported[q] && !gave
		}
	}
	if !u.mig() { // board counters are the board's
		s.readings(b, i, u, fast)
		if round {
			s.readings(b, i, u, slow)
		}
	}
	s.readMemory(b, i, u, round)
	if u.gpm != nil && !u.lost {
		u.gpm.read(b, i, s.set.Sampling)
	}
	if round && s.set.Processes && !u.lost {
		s.processes(b, u)
	}
}

// oneMoment is the share of the sampling interval within which values have one time.
const oneMoment = 0.1

// readings makes the calls of a list. All values of a round have the time of the middle of its
// first call, which is the energy counter's, unless calls take long: a busy driver needs seconds.
func (s *source) readings(b *gpudata.Batch, i int, u *unit, list []reading) {
	var t int64
	for k := range list {
		r := &list[k]
		if u.lost || u.unsupported[r.quantity] {
			continue
		}
		if !r.supported(s.lib) {
			u.unsupported[r.quantity] = true
			continue
		}
		before := time.Now()
		v, ret := r.of(s, u.handle)
		middle := before.Add(time.Since(before) / 2).UnixNano()
		if t == 0 || float64(middle-t) > oneMoment*float64(s.set.Sampling) {
			t = middle
		}
		switch ret {
		case nvml.Success:
			b.Add(i, r.quantity, t, v)
			u.gave[r.quantity], u.denied[r.quantity] = true, false
			u.condition.Take(r.quantity, v)
		case nvml.ErrorNotSupported, nvml.ErrorFunctionNotFound, nvml.ErrorInvalidArgument, nvml.ErrorNoPermission:
			u.unsupported[r.quantity] = true
			u.denied[r.quantity] = ret == nvml.ErrorNoPermission && u.gave[r.quantity]
			b.Dropped[gpudata.DropBlank]++
		case nvml.ErrorGPUIsLost:
			u.lost = true
		default:
			b.Dropped[gpudata.DropStatus]++
		}
	}
}

func (s *source) readMemory(b *gpudata.Batch, i int, u *unit, round bool) {
	if u.lost {
		return
	}
	t := time.Now().UnixNano()
	if m := &s.memory; s.memoryOf(u) == nvml.Success {
		b.Add(i, gpuquantity.MemoryUsed, t, float64(m.Used))
		if round {
			b.Add(i, gpuquantity.MemoryLimit, t, float64(m.Total))
			b.Add(i, gpuquantity.MemoryReserved, t, float64(m.Reserved))
		}
	} else {
		b.Dropped[gpudata.DropStatus]++
	}
}

// memoryOf reads a device's memory into s.memory. The second version of the function excludes memory
// reserved by the driver from the used memory, as nvidia-smi and DCGM do.
func (s *source) memoryOf(u *unit) nvml.Return {
	s.memory = nvml.MemoryV2{Version: nvml.MemoryVersion2}
	return s.lib.Call("nvmlDeviceGetMemoryInfo_v2", u.handle, &s.memory)
}

// notAvailable is NVML's value for a process whose memory it may not report.
const notAvailable = ^uint64(0)

func (s *source) processes(b *gpudata.Batch, u *unit) {
	list, ret := s.running(contextLists[0], u.handle)
	if ret != nvml.Success {
		b.Dropped[gpudata.DropStatus]++
		b.Listed = 0
		return
	}
	for _, p := range list {
		b.Processes = append(b.Processes, gpudata.ProcessMemory{Device: u.desc.ID, PID: int64(p.Pid), Bytes: bytesOf(&p)})
	}
}

// bytesOf returns the memory of a process.
func bytesOf(p *nvml.ProcessInfo) int64 {
	if p.UsedGpuMemory == notAvailable {
		return gpudata.BytesUnknown
	}
	return int64(p.UsedGpuMemory)
}

// running lists processes. If some start between two calls, the list is longer than reported.
func (s *source) running(function string, device any) ([]nvml.ProcessInfo, nvml.Return) {
	for n := uint64(16); ; n *= 2 {
		list, count := make([]nvml.ProcessInfo, n), n
		ret := s.lib.Call(function, device, &count, &list[0])
		const most = 1 << 16
		if ret != nvml.ErrorInsufficientSize || n >= most {
			return list[:min(count, n)], ret
		}
	}
}
