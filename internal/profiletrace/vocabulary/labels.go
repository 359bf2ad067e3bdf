// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// automatics are prefixes of annotations that frameworks create by themselves, which do not name
// parts of the application: steps, collectives, the optimizer, the data loader.
var automatics = []string{
	"ProfilerStep#", "nccl:", "xccl:", "hccl:", "gloo:", "mpi:", "ucc:", "Optimizer.",
	"enumerate(DataLoader)", "DistributedDataParallel.",
}

// Automatic reports whether a framework creates annotations of the name by itself.
func Automatic(name string) bool {
	return slices.ContainsFunc(automatics, func(p string) bool { return strings.HasPrefix(name, p) })
}

// libraries are parts of names that only communication kernels have: collective libraries of
// NVIDIA, AMD, Habana and Ascend, Intel, NVIDIA's SHMEM and DeepSeek's DeepEP on it (dpsk::ep in
// DeepSeek's own build), Microsoft's MSCCL++, the multicast instructions of PyTorch's symmetric
// memory, vLLM's and aiter's own all-reduce (cross_device_reduce, quickreduce), FlashInfer's and
// TensorRT-LLM's on user buffers.
var libraries = []string{
	"nccl", "rccl", "hccl", "oneccl", "nvshmem", "deep_ep::", "dpsk::ep::", "mscclpp", "multimem_",
	"cross_device_reduce", "quickreduce", "userbuffers",
}

// collectiveWords are parts of the short names of kernels that other libraries write for
// collectives, without underscores.
var collectiveWords = []string{"allreduce", "reducescatter", "allgather", "alltoall"}

// IsCommunication reports whether a kernel communicates with other devices: by its library, else by
// its own name (not by its template arguments: softmax kernels reduce among all threads of a warp).
func IsCommunication(kernel string) bool {
	if slices.ContainsFunc(libraries, func(l string) bool { return containsFold(kernel, l) }) {
		return true
	}
	short := strings.ToLower(strings.ReplaceAll(ShortName(kernel), "_", ""))
	return ContainsAny(short, collectiveWords)
}

func containsFold(s, lower string) bool {
	for i := 0; i+len(lower) <= len(s); i++ {
		if s[i]|0x20 == lower[0] && strings.EqualFold(s[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}

var collectives = []struct{ word, name string }{
	{"allreduce", "all_reduce"},
	{"reducescatter", "reduce_scatter"},
	{"allgather", "all_gather"},
	{"alltoall", "all_to_all"},
	{"broadcast", "broadcast"},
	{"sendrecv", ""},
	{"gather", "gather"},
	{"scatter", "scatter"},
	{"reduce", "reduce"},
	{"send", "send"},
	{"recv", "recv"},
}

// CollectiveName returns the value of gpu.collective.name for a kernel's name or a framework's name
// of a collective; empty if it is ambiguous (one kernel of NCCL serves both send and recv).
func CollectiveName(s string) string {
	s = strings.ToLower(s)
	s = strings.NewReplacer("_", "", "-", "", " ", "").Replace(s)
	for _, c := range collectives {
		if strings.Contains(s, c.word) {
			return c.name
		}
	}
	return ""
}

// CollectiveAlgorithm parses a kernel's name as NCCL builds it:
// ncclDevKernel_AllReduce_Sum_f32_RING_LL. Kernels that serve several algorithms ("Generic") state
// neither.
func CollectiveAlgorithm(kernel string) (algorithm, protocol string) {
	head, _, _ := strings.Cut(kernel, "(")
	for part := range strings.SplitSeq(head, "_") {
		algorithm = cmp.Or(algorithms[part], algorithm)
		protocol = cmp.Or(protocols[part], protocol)
	}
	return algorithm, protocol
}

var (
	algorithms = map[string]string{
		"RING": "ring", "TREE": "tree", "COLLNET": "collnet", "COLLNETDIRECT": "collnet", "COLLNETCHAIN": "collnet",
		"NVLS": "nvls", "NVLSTREE": "nvls",
	}
	protocols = map[string]string{"LL": "ll", "LL128": "ll128", "SIMPLE": "simple"}
)

// ElementSize returns the size in bytes of an element type as frameworks name it; 0 when unknown.
func ElementSize(t string) int64 {
	switch strings.ToLower(strings.TrimPrefix(t, "c10::")) {
	case "double", "float64", "long", "int64", "long int", "complexfloat":
		return 8
	case "float", "float32", "int", "int32", "uint32":
		return 4
	case "half", "float16", "bfloat16", "short", "int16":
		return 2
	case "byte", "char", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz":
		return 1
	case "complexdouble":
		return 16
	}
	return 0
}

// PrecisionOf returns the engine of a product of fp32: the record does not state whether TF32 was
// allowed, but names of kernels on tensor cores show it.
func PrecisionOf(precision, kernel string) string {
	if precision == "fp32" && (strings.Contains(kernel, "tf32") || strings.Contains(kernel, "s1688") ||
		strings.Contains(kernel, "tensorop_s")) {
		return "tf32"
	}
	return precision
}

// CollectiveSize returns gpu.io.size of a collective by the convention of NCCL's tests: the
// gathered whole of a gather, else one rank's send buffer. Zero when not known.
func CollectiveSize(name string, in, out, element int64) int64 {
	switch name {
	case "all_gather", "gather":
		return out * element
	case "":
		return 0
	}
	return in * element
}

// CopyKind parses the name of a copy, as "Memcpy HtoD (Pageable -> Device)", and returns values of
// gpu.copy.direction and gpu.copy.host_memory, empty if the name does not state them.
func CopyKind(name string) (direction, memory string) {
	for _, d := range copyWords {
		if ContainsAny(name, d.words) {
			direction = d.direction
			break
		}
	}
	switch {
	case direction == "device_to_device" || direction == "peer_to_peer":
	case strings.Contains(name, "Pageable"), strings.Contains(name, "M2D"), strings.Contains(name, "D2M"):
		memory = "pageable"
	case strings.Contains(name, "Pinned"):
		memory = "pinned"
	}
	return direction, memory
}

// RocCopy returns a name as CopyKind reads it for a copy that rocprofv3 names, as
// MEMORY_COPY_HOST_TO_DEVICE: "Memcpy HtoD", or "Memcpy" if the direction is unknown.
func RocCopy(operation string) string {
	for _, d := range [...]struct{ ending, name string }{
		{"HOST_TO_DEVICE", "Memcpy HtoD"}, {"DEVICE_TO_HOST", "Memcpy DtoH"}, {"DEVICE_TO_DEVICE", "Memcpy DtoD"},
	} {
		if strings.HasSuffix(operation, d.ending) {
			return d.name
		}
	}
	return "Memcpy"
}

// copyWords maps words in the names of copies to directions. Intel's have M for memory that the
// program allocated itself, H for memory that the runtime allocated.
var copyWords = []struct {
	direction string
	words     []string
}{
	{"host_to_device", []string{"HtoD", "HtoA", "HostToDevice", "HOST_TO_DEVICE", "H2D", "M2D"}},
	{"device_to_host", []string{"DtoH", "AtoH", "DeviceToHost", "DEVICE_TO_HOST", "D2H", "D2M"}},
	{"device_to_device", []string{"DtoD", "AtoA", "AtoD", "DtoA", "DeviceToDevice", "DEVICE_TO_DEVICE", "D2D"}},
	{"peer_to_peer", []string{"PtoP", "P2P"}},
	{"host_to_host", []string{"HtoH", "HostToHost", "H2H", "M2H", "H2M", "M2M"}},
}

// CopyName returns the name that PyTorch's profiler gives a copy, by CUPTI's numbers of its kind
// (CUpti_ActivityMemcpyKind) and of the memories that it reads and writes
// (CUpti_ActivityMemoryKind); [CopyKind] reads it.
func CopyName(kind, source, target int64) string {
	directions := [...]string{1: "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"}
	memories := [...]string{1: "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"}
	if kind < 1 || kind >= int64(len(directions)) {
		return "Memcpy"
	}
	memory := func(k int64, side byte) string {
		if k < 1 || k >= int64(len(memories)) {
			return map[byte]string{'H': "Host", 'D': "Device", 'A': "Array", 'P': "Device"}[side]
		}
		return memories[k]
	}
	d := directions[kind]
	return "Memcpy " + d + " (" + memory(source, d[0]) + " -> " + memory(target, d[3]) + ")"
}

// launching are parts of the names of calls that put work on a stream.
var launching = []string{"Launch", "Memcpy", "Memset", "memcpy", "memset", "urEnqueue"}

// LaunchesWork reports whether a call puts work on a stream.
func LaunchesWork(name string) bool { return ContainsAny(name, launching) }

// UsesDevice reports whether a call puts work on a stream or waits for it.
func UsesDevice(call string) bool { return LaunchesWork(call) || timeline.WaitsForDevice(call) }

// ContainsAny reports whether s contains one of the words.
func ContainsAny(s string, words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}

// opaque reports whether a range is a compiled region, within which operators are not recorded.
func opaque(name string) bool {
	return strings.HasPrefix(name, "Torch-Compiled Region") || strings.HasPrefix(name, "## Call CompiledFxGraph") ||
		strings.HasPrefix(name, "CompiledFunction") || strings.HasPrefix(name, "cudaGraphLaunch")
}

// Phase returns the phase of a step that a range represents, empty for most ranges.
func Phase(name string) string {
	switch {
	case strings.HasPrefix(name, "enumerate(DataLoader)"):
		return "data"
	case strings.HasPrefix(name, "Optimizer.step"):
		return "optimizer"
	}
	return phases[strings.ToLower(strings.Trim(name, "# *-=[]<>"))]
}

var phases = map[string]string{
	"forward": "forward", "forward_pass": "forward", "forward pass": "forward",
	"backward": "backward", "backward_pass": "backward", "backward pass": "backward",
	"optimizer": "optimizer", "optimizer_step": "optimizer", "optimizer step": "optimizer",
	"data": "data", "data_loading": "data", "data loading": "data", "dataloader": "data", "load_data": "data",
}

// Forms in which an annotation's text names a span: W3C's header, and the two ids as gpuspan/nvtx
// writes them into texts.
var (
	traceParent = regexp.MustCompile(`\b00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}\b`)
	bothIDs     = regexp.MustCompile(` ?\btrace_id=([0-9a-f]{32}) span_id=([0-9a-f]{16})\b`)
)

// FindTraceParent removes the IDs of a span from an annotation's name, as in "request
// traceparent=00-…-…-01" or "decode trace_id=… span_id=…", and returns them as a W3C traceparent.
// rest is the remaining name.
func FindTraceParent(name string) (rest, parent string) {
	if at := bothIDs.FindStringSubmatchIndex(name); at != nil {
		parent = "00-" + name[at[2]:at[3]] + "-" + name[at[4]:at[5]] + "-01"
		return cmp.Or(strings.TrimSpace(name[:at[0]]+name[at[1]:]), "annotation"), parent
	}
	at := traceParent.FindStringIndex(name)
	if at == nil {
		return name, ""
	}
	parent = name[at[0]:at[1]]
	rest = strings.TrimRight(name[:at[0]], " =:#[(")
	rest = strings.TrimSpace(strings.TrimSuffix(rest, "traceparent"))
	rest = strings.TrimSpace(strings.TrimRight(rest, " =:#[(,;|") + " " + strings.TrimLeft(name[at[1]:], " ])"))
	return cmp.Or(rest, "annotation"), parent
}

// LoopOf returns the name of the loop of a step: "ProfilerStep" of "ProfilerStep#7". numbered: the
// file states the step's number, so that digits at the end of the name are that number however they
// are separated.
func LoopOf(step string, numbered bool) string {
	name := strings.TrimRight(step, "0123456789")
	switch {
	case numbered:
		return cmp.Or(strings.TrimRight(name, " _#:=-"), step)
	case len(name) == len(step) || !strings.HasSuffix(name, "#") || name == "#":
		return step
	}
	return strings.TrimRight(name[:len(name)-1], " ")
}

// SplitInstance removes the number from the name of a module, by which PyTorch counts instances of
// a class: "nn.Module: Linear_83".
func SplitInstance(name string) (class string, instance int64, ok bool) {
	i := strings.LastIndexByte(name, '_')
	if i <= 0 || i == len(name)-1 {
		return name, 0, false
	}
	for _, c := range []byte(name[i+1:]) {
		if c-'0' > 9 {
			return name, 0, false
		}
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 64)
	if err != nil {
		return name, 0, false
	}
	return name[:i], n, true
}
