// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// machine simulates a host with devices that runs a program, and writes the events that a profiler
// would record. Work starts once it is launched, its stream is free and its dependencies have
// ended, so that losses follow from causes instead of being written into the file. Times are in ns.
type machine struct {
	r      *rand.Rand
	style  style
	now    int64
	free   map[[2]int64]int64 // end of the last work, by device and stream
	events []string
	corr   int64
	thread int64
	device int64
	pid    string
	head   string // start of the file
}

// style is the format of one framework, backend and profiler version.
type style struct {
	name                                      string
	operator, runtime, kernel, copying        string // categories
	launch, copyCall, sync, malloc, free, tid string
	step                                      string // its name, with %d; empty: the program has no steps
	loader                                    string // name of the range that waits for data; empty: as frames of Python
	whole                                     bool   // times are integer microseconds
	model                                     string
}

func newMachine(seed uint64, s style) *machine {
	return &machine{r: rand.New(rand.NewPCG(seed, 7)), style: s, free: map[[2]int64]int64{}, now: 1_000_000, thread: 4711, pid: "800"}
}

// about returns a random length around d.
func (m *machine) about(d int64) int64 {
	v := d*3/4 + m.r.Int64N(max(1, d/2))
	if m.style.whole {
		v = max(1, v/1000) * 1000
	}
	return v
}

func (m *machine) event(category, name, pid, tid string, start, end int64, args string) {
	m.events = append(m.events, fmt.Sprintf(
		`{"ph":"X","cat":%q,"name":%q,"pid":%s,"tid":%s,"ts":%d.%03d,"dur":%d.%03d,"args":{%s}}`,
		category, name, pid, tid, start/1000, start%1000, (end-start)/1000, (end-start)%1000, args))
}

func (m *machine) host(category, name string, start, end int64, args string) {
	m.event(category, name, m.pid, fmt.Sprint(m.thread), start, end, args)
}

// within records a host range around f.
func (m *machine) within(category, name string, f func()) {
	start := m.now
	m.now += 500
	f()
	m.now += 500
	m.host(category, name, start, m.now, "")
}

func (m *machine) call(name string, length int64) {
	m.host(m.style.runtime, name, m.now, m.now+length, "")
	m.now += length
}

// work is one activity of a device.
type work struct {
	name     string
	length   int64
	stream   int64
	category string // empty: a kernel
	args     string
	after    int64 // end of the work that it waits for
}

// launch enqueues work on a stream and returns its end.
func (m *machine) launch(w work) (end int64) {
	m.corr++
	call, cat := m.style.launch, m.style.kernel
	if w.category != "" {
		call, cat = m.style.copyCall, w.category
	}
	start, length := m.now, m.about(4000)
	m.now += length
	key := [2]int64{m.device, w.stream}
	begin := max(m.now+m.about(4000), m.free[key]+1000, w.after)
	if m.style.whole {
		begin = begin / 1000 * 1000
	}
	end = begin + w.length
	m.free[key] = end
	m.host(m.style.runtime, call, start, m.now, fmt.Sprintf(`"correlation":%d,"External id":%d`, m.corr, m.corr))
	tid := fmt.Sprint(w.stream)
	if m.style.tid != "" {
		tid = fmt.Sprintf("%q", fmt.Sprintf(m.style.tid, w.stream))
	}
	m.event(cat, w.name, fmt.Sprint(m.device), tid, begin, end,
		fmt.Sprintf(`"device":%d,"stream":%d,"correlation":%d,"External id":%d%s`, m.device, w.stream, m.corr, m.corr,
			w.args))
	return end
}

// operator launches work from a framework operator.
func (m *machine) operator(name string, ws ...work) {
	m.within(m.style.operator, name, func() {
		m.now += m.about(3000)
		for _, w := range ws {
			m.launch(w)
		}
		m.now += m.about(2000)
	})
}

// busy returns the time until which the device works.
func (m *machine) busy(device int64) (end int64) {
	for k, t := range m.free {
		if k[0] == device {
			end = max(end, t)
		}
	}
	return end
}

// wait lets the host wait for its device.
func (m *machine) wait(inside string) {
	f := func() {
		start := m.now
		m.now = max(m.now+2000, m.busy(m.device)+3000)
		m.host(m.style.runtime, m.style.sync, start, m.now, "")
	}
	if inside == "" {
		f()
		return
	}
	m.within(m.style.operator, inside, f)
}

func (m *machine) steps(n int, f func(i int)) {
	for i := range n {
		start := m.now
		m.now += 1000
		f(i)
		m.now += 1000
		if m.style.step != "" {
			m.host("user_annotation", fmt.Sprintf(m.style.step, i+3), start, m.now, "")
		}
	}
}

func (m *machine) text(devices int) string {
	var list []string
	for i := range devices {
		if m.style.model != "" {
			list = append(list, fmt.Sprintf(`{"id":%d,"name":%q,"numSms":108}`, i, m.style.model))
		}
	}
	return `{"schemaVersion":1,` + m.head + `"deviceProperties":[` + strings.Join(list, ",") + `],"traceEvents":[` +
		strings.Join(m.events, ",\n") + `]}`
}

// styles returns the styles of PyTorch 2 on NVIDIA and AMD, PyTorch of 2021, Lightning, and a
// program with its own names.
func styles() []style {
	modern := style{
		name: "torch", operator: "cpu_op", runtime: "cuda_runtime", kernel: "kernel", copying: "gpu_memcpy",
		launch: "cudaLaunchKernel", copyCall: "cudaMemcpyAsync",
		sync: "cudaStreamSynchronize", malloc: "cudaMalloc", free: "cudaFree", step: "ProfilerStep#%d",
		loader: "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", model: "NVIDIA A100-SXM4-80GB",
	}
	amd, old, lightning, plain, frames, intel := modern, modern, modern, modern, modern, modern
	amd.name, amd.launch, amd.copyCall, amd.sync, amd.malloc, amd.free = "rocm", "hipLaunchKernel", "hipMemcpyWithStream",
		"hipStreamSynchronize", "hipMalloc", "hipFree"
	amd.model = "AMD Instinct MI300X"
	old.name, old.operator, old.runtime, old.kernel, old.copying, old.tid, old.whole = "2021", "Operator", "Runtime",
		"Kernel", "Memcpy", "stream %d", true
	lightning.name, lightning.loader, lightning.launch = "lightning",
		"[pl][profile][_TrainingEpochLoop].train_dataloader_next", "cudaLaunchKernelExC"
	plain.name, plain.step, plain.loader, plain.launch, plain.runtime = "plain", "", "fetch batch", "cuLaunchKernel",
		"cuda_driver"
	frames.name, frames.loader, frames.sync = "frames", "", "cudaDeviceSynchronize"
	intel.name, intel.runtime, intel.launch, intel.copyCall = "xpu", "xpu_runtime", "urEnqueueKernelLaunch",
		"urEnqueueUSMMemcpy"
	intel.sync, intel.malloc, intel.free = "urQueueFinish", "urUSMDeviceAlloc", "urUSMFree"
	intel.model = "Intel(R) Data Center GPU Max 1550"
	return []style{modern, amd, old, lightning, plain, frames, intel}
}
