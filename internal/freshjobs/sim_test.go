// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// model describes a device: rates are per second.
type model struct {
	name                 string
	sms                  int
	half, single, tf32   float64 // FLOP
	bytes                float64
	major, minor, memory int
	amd                  bool
	gemm, gemm32         string // names of kernels
	warp                 int
}

var (
	h100 = model{
		"NVIDIA H100 80GB HBM3", 132, 989e12, 67e12, 494e12, 3.35e12, 9, 0, 85018279936, false,
		"nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNN", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", 32,
	}
	a100 = model{
		"NVIDIA A100-SXM4-80GB", 108, 312e12, 19.5e12, 156e12, 2.039e12, 8, 0, 85049606144, false,
		"ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "ampere_sgemm_128x64_tn", 32,
	}
	l40s = model{
		"NVIDIA L40S", 142, 362e12, 91.6e12, 183e12, 864e9, 8, 9, 47810936832, false,
		"ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn", "ampere_sgemm_128x128_tn", 32,
	}
	b200 = model{
		"NVIDIA B200", 148, 2250e12, 75e12, 1100e12, 7.7e12, 10, 0, 191503138816, false,
		"nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x128x16_3_tnn_align1", 32,
	}
	v100 = model{
		"Tesla V100-SXM2-32GB", 80, 125e12, 15.7e12, 15.7e12, 900e9, 7, 0, 34089730048, false,
		"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "volta_sgemm_128x64_tn", 32,
	}
	mi300x = model{
		"AMD Instinct MI300X", 304, 1307e12, 163e12, 653e12, 5.3e12, 9, 4, 206141652992, true,
		"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1", "Cijk_Alik_Bljk_SB_Bias_HA_S_SAV_UserArgs_MT128x128x16_MI16x16x1_SN", 64,
	}
)

type recordKind int

const (
	cpuOp recordKind = iota
	pyFunc
	annotation
	deviceAnnotation
	runtime
	driver
	kernelRun
	memcpy
	memset
	overhead
	migration
)

// record is one event of a recorded program. Times are in microseconds.
type record struct {
	kind           recordKind
	name           string
	tid            int
	ts, dur        float64
	corr, ext      int
	stream         int
	grid, block    [3]int
	regs, smem     int
	bytes          int64
	src, dst       string // of copies
	collective     string // further members of a collective's kernel
	members        string // further JSON members
	graph          bool
	pyID, pyParent int
}

type kern struct {
	name       string
	dur        float64
	blocks     int
	threads    int
	regs, smem int
	stream     int
	collective string
}

// sim is a host program and the queues of one device. It knows only order and durations: a queued
// activity starts when its call was made and what precedes it on its stream has ended.
type sim struct {
	*rand.Rand
	dev                model
	records            []record
	now                float64
	tid                int
	threads            map[int]float64
	queue              map[int]float64 // end of the last activity by stream
	gate               map[int]float64 // of a stream: earliest start by waits for events
	corr, ext, py      int
	pyStack            []int
	opStack            []int
	open               []openAnnotation
	stacks, shapes     bool
	hostScale          float64 // of the host's costs of operators
	kernelScale        float64
	x                  float64 // the cause, in microseconds per step
	secondary          int
	rank, world        int
	groupName          string
	seq, step          int
	half               bool
	noFlow             bool
	launchName         string
	dropEvery          func(n int) bool // activities without a record
	launched, unstored int
	start              float64
	noSteps            bool
	firstStep          int
}

type openAnnotation struct {
	index      int
	start, end float64
	stream     int
}

func newSim(seed uint64, d model) *sim {
	s := &sim{
		Rand: rand.New(rand.NewPCG(seed, 77)), dev: d, tid: 4211, threads: map[int]float64{},
		queue: map[int]float64{}, gate: map[int]float64{}, hostScale: 1, kernelScale: 1, shapes: true, half: true,
	}
	s.corr, s.ext, s.py = 1000+s.IntN(90000), 1, 1
	s.now = 5_000_000_000 + float64(s.IntN(1_000_000))
	s.start = s.now
	s.secondary = s.IntN(4)
	s.firstStep = 3 + s.IntN(50)
	return s
}

// j returns a duration with jitter.
func (s *sim) j(us, rel float64) float64 { return us * math.Max(0.3, 1+rel*s.NormFloat64()) }

func (s *sim) host(us float64) { s.now += s.j(us, 0.12) }

// span returns the time from the start of the recording to its end.
func (s *sim) span() float64 {
	end := s.now
	for _, e := range s.queue {
		end = math.Max(end, e)
	}
	return end - s.start
}

// window returns the time from the first activity of the device to the last.
func (s *sim) window() float64 {
	first, last := math.Inf(1), 0.0
	for i := range s.records {
		if r := &s.records[i]; r.kind == kernelRun || r.kind == memcpy {
			first, last = math.Min(first, r.ts), math.Max(last, r.ts+r.dur)
		}
	}
	return last - first
}

func (s *sim) put(r record) int {
	r.tid = s.tid
	s.records = append(s.records, r)
	return len(s.records) - 1
}

// op is an operator; dims are "4096x1024:bf16 1024" and so on.
func (s *sim) op(name, dims string, f func()) {
	s.ext++
	ext := s.ext
	i := s.put(record{kind: cpuOp, name: name, ts: s.now, ext: ext, members: s.inputs(dims)})
	s.opStack = append(s.opStack, ext)
	s.host(2.5 * s.hostScale)
	if f != nil {
		f()
	}
	s.host(1.5 * s.hostScale)
	s.opStack = s.opStack[:len(s.opStack)-1]
	s.records[i].dur = s.now - s.records[i].ts
}

func (s *sim) inputs(dims string) string {
	if !s.shapes || dims == "" {
		return ""
	}
	var shapes, types []string
	for d := range strings.FieldsSeq(dims) {
		shape, typ, _ := strings.Cut(d, ":")
		switch typ {
		case "", "half":
			if typ = "c10::BFloat16"; !s.half {
				typ = "float"
			}
		case "int":
			typ = "long int"
		case "s":
			typ = "Scalar"
		}
		if shape == "_" {
			shapes = append(shapes, "[]")
		} else {
			shapes = append(shapes, "["+strings.ReplaceAll(shape, "x", ", ")+"]")
		}
		types = append(types, `"`+typ+`"`)
	}
	return `"Input Dims": [` + strings.Join(shapes, ", ") + `], "Input type": [` + strings.Join(types, ", ") + `]`
}

// frame is a Python function, recorded if the profile has stacks.
func (s *sim) frame(name string, f func()) {
	if !s.stacks {
		s.host(0.5)
		f()
		return
	}
	s.py++
	parent := 0
	if n := len(s.pyStack); n > 0 {
		parent = s.pyStack[n-1]
	}
	i := s.put(record{kind: pyFunc, name: name, ts: s.now, pyID: s.py, pyParent: parent})
	s.pyStack = append(s.pyStack, s.py)
	s.host(1)
	f()
	s.host(0.5)
	s.pyStack = s.pyStack[:len(s.pyStack)-1]
	s.records[i].dur = s.now - s.records[i].ts
}

// note is an annotation of the program (record_function, NVTX).
func (s *sim) note(name string, f func()) {
	s.ext++
	ext := s.ext
	i := s.put(record{kind: annotation, name: name, ts: s.now, ext: ext})
	s.open = append(s.open, openAnnotation{index: i, start: math.Inf(1)})
	s.host(2)
	f()
	s.host(1)
	s.records[i].dur = s.now - s.records[i].ts
	o := s.open[len(s.open)-1]
	s.open = s.open[:len(s.open)-1]
	if o.end > 0 {
		s.put(record{kind: deviceAnnotation, name: name, ts: o.start, dur: o.end - o.start, ext: ext, stream: o.stream})
	}
}

// on runs f on another thread while this one waits.
func (s *sim) on(tid int, f func()) {
	from := s.tid
	s.host(8)
	s.tid = tid
	f()
	s.host(8)
	s.tid = from
}

func (s *sim) call(name string, us float64) int {
	s.corr++
	ext := 0
	if n := len(s.opStack); n > 0 {
		ext = s.opStack[n-1]
	}
	kind := runtime
	if strings.HasPrefix(name, "cu") && !strings.HasPrefix(name, "cuda") {
		kind = driver
	}
	i := s.put(record{kind: kind, name: s.api(name), ts: s.now, corr: s.corr, ext: ext})
	s.now += s.j(us, 0.15)
	s.records[i].dur = s.now - s.records[i].ts
	return i
}

func (s *sim) api(name string) string {
	if s.dev.amd {
		switch name {
		case "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx":
			return "hipLaunchKernel"
		case "cudaMemcpyAsync":
			return "hipMemcpyWithStream"
		}
		return strings.Replace(name, "cuda", "hip", 1)
	}
	return name
}

// begin returns when an activity queued by a call that ends now starts.
func (s *sim) begin(stream int) float64 {
	at := math.Max(s.now+s.j(2.2, 0.1), s.gate[stream])
	if q := s.queue[stream]; q > 0 {
		at = math.Max(at, q+s.j(0.9, 0.1))
	}
	return at
}

func (s *sim) activity(r record, dur float64) int {
	r.ts, r.dur = s.begin(r.stream), dur
	return s.place(r)
}

func (s *sim) place(r record) int {
	s.queue[r.stream] = r.ts + r.dur
	for i := range s.open {
		o := &s.open[i]
		o.start, o.end, o.stream = math.Min(o.start, r.ts), math.Max(o.end, r.ts+r.dur), r.stream
	}
	s.launched++
	if s.dropEvery != nil && s.dropEvery(s.launched) {
		s.unstored++
		return -1
	}
	return s.put(r)
}

// launch queues a kernel.
func (s *sim) launch(k kern) int {
	name := s.launchName
	if name == "" {
		name = "cudaLaunchKernel"
	}
	if strings.HasPrefix(k.name, "triton_") {
		name = "cuLaunchKernel"
	} else if strings.HasPrefix(k.name, "nccl") {
		name = "cudaLaunchKernelExC"
	}
	c := s.records[s.call(name, 4.2*s.hostScale)]
	return s.activity(s.kernel(k, c.corr, c.ext), s.j(k.dur*s.kernelScale, 0.01))
}

func (s *sim) kernel(k kern, corr, ext int) record {
	stream := k.stream
	if stream == 0 {
		stream = 7
	}
	if k.threads == 0 {
		k.threads = 128
	}
	if k.regs == 0 {
		k.regs = 32
	}
	return record{
		kind: kernelRun, name: k.name, stream: stream, corr: corr, ext: ext, grid: [3]int{max(k.blocks, 1), 1, 1},
		block: [3]int{k.threads, 1, 1}, regs: k.regs, smem: k.smem, collective: k.collective,
	}
}

// graph replays kernels by one call.
func (s *sim) graph(ks []kern) {
	c := s.records[s.call("cudaGraphLaunch", 9+0.03*float64(len(ks)))]
	for i := range ks {
		r := s.kernel(ks[i], c.corr, c.ext)
		r.graph = true
		r.dur = s.j(ks[i].dur, 0.01)
		if i == 0 {
			r.ts = s.begin(r.stream)
		} else {
			r.ts = s.queue[r.stream] + s.j(0.75, 0.1)
		}
		s.place(r)
	}
}

// copyTo queues a copy; kind is "HtoD" or "DtoH" with "Pageable" or "Pinned", or "DtoD". A copy
// from or to pageable memory blocks the host until it is done.
func (s *sim) copyTo(kind, memory string, bytes int64, stream int) {
	rate := map[string]float64{"Pageable": 7.5e9, "Pinned": 25e9, "Device": s.dev.bytes * 0.4}[memory]
	i := s.call("cudaMemcpyAsync", 5)
	r := record{kind: memcpy, stream: stream, corr: s.records[i].corr, ext: s.records[i].ext, bytes: bytes}
	switch kind {
	case "HtoD":
		r.src, r.dst = memory, "Device"
	case "DtoH":
		r.src, r.dst = "Device", memory
	default:
		r.src, r.dst = "Device", "Device"
	}
	r.name = "Memcpy " + kind + " (" + r.src + " -> " + r.dst + ")"
	s.activity(r, s.j(1.3+float64(bytes)/rate*1e6, 0.02))
	if memory == "Pageable" {
		s.now = math.Max(s.now, s.queue[stream]+s.j(3, 0.2))
		s.records[i].dur = s.now - s.records[i].ts
	}
}

// wait is a call that returns when the streams are done.
func (s *sim) wait(name string, streams ...int) {
	i := s.call(name, 3)
	for stream, end := range s.queue {
		if len(streams) == 0 || slices.Contains(streams, stream) {
			s.now = math.Max(s.now, end+2.5)
		}
	}
	s.records[i].dur = s.now - s.records[i].ts
}

// after makes a stream wait for what another has queued so far, by an event.
func (s *sim) after(stream, other int) {
	s.call("cudaEventRecord", 1.8)
	s.call("cudaStreamWaitEvent", 1.6)
	s.gate[stream] = math.Max(s.gate[stream], s.queue[other])
}

// read is a value that the host reads from the device: Tensor.item.
func (s *sim) read() {
	s.op("aten::item", "1", func() {
		s.op("aten::_local_scalar_dense", "1", func() {
			s.copyTo("DtoH", "Pinned", 4, 7)
			s.wait("cudaStreamSynchronize", 7)
		})
	})
}

// steps runs a loop whose iterations the profiler marks.
func (s *sim) steps(n int, f func(i int)) {
	for i := range n {
		s.step = i
		body := func() {
			f(i)
			s.small()
		}
		if s.noSteps {
			body()
			continue
		}
		s.note(fmt.Sprintf("ProfilerStep#%d", s.firstStep+i), body)
	}
}

// small is a second fault, which costs a few percent at most.
func (s *sim) small() {
	switch s.secondary {
	case 1:
		s.read()
	case 2:
		s.op("aten::to", "4096", func() {
			s.op("aten::_to_copy", "4096", func() { s.op("aten::copy_", "4096 4096", func() { s.copyTo("HtoD", "Pageable", 16384, 7) }) })
		})
	case 3:
		s.frame("train.py(88): log_metrics", func() { s.host(60) })
	}
}

// busyHost is work of the host that no operator covers.
func (s *sim) busyHost(us float64) { s.now += s.j(us, 0.06) }
