// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Meaning is the meaning of the name of a host range, determined once per name.
type Meaning struct {
	Found    bool
	Phase    string
	Opaque   bool // a region that a compiler made
	Operator bool // of a library: inside such a region it still names the work
	Class    timeline.Range
	Kernel   bool // a call that launches one kernel
	Polls    bool // a call that asks whether work has ended
	Settles  bool // a call that returns when all work of a device or stream has ended
	Plain    bool // an annotation without a number
	Backward bool // a function of the backward pass
	Moves    bool // an operator that moves bytes and computes nothing
	Tries    bool // a frame in which a library measures which kernel is the fastest
	Queue    bool // a frame that reads from a queue: data in a program with steps, otherwise requests
}

// MeaningOf returns the meaning of the name of a host range of the kind.
func MeaningOf(kind event.Kind, name string) Meaning {
	f := Meaning{Found: true}
	switch kind {
	case event.KindRuntime:
		f.Opaque, f.Class = strings.Contains(name, "GraphLaunch"), callClass(name)
		f.Kernel = strings.Contains(name, "LaunchKernel") || strings.Contains(name, "LaunchCooperativeKernel") ||
			strings.Contains(name, "KernelLaunch")
		f.Polls = strings.Contains(name, "EventQuery") || strings.Contains(name, "StreamQuery")
		f.Settles = f.Class == timeline.CallWait && !strings.Contains(name, "Event")
		return f
	case event.KindStep:
		f.Class = timeline.RangeStep
		return f
	case event.KindFrame:
		name = strings.ReplaceAll(name, windowsSlash, "/")
		f.Class = timeline.RangeFrame
		switch {
		case strings.HasPrefix(name, event.ProfilerFrame):
			f.Class = timeline.RangeProfiler
		case ContainsAny(name, eventLoops), awaits(function(name)):
			f.Class = timeline.RangeOutside
		case (strings.HasSuffix(name, "__next__") || strings.HasSuffix(name, "__iter__")) && ContainsAny(name, dataModules),
			loader(function(name)):
			f.Class = timeline.RangeLoader
		case queue(name):
			f.Class, f.Queue = timeline.RangeLoader, true
		case peerFrame(name):
			f.Class = timeline.RangePeer
		case waitFrame(name):
			f.Class = timeline.CallWait
		case ContainsAny(name, polls):
			f.Class = timeline.RangePoll
		case tries(name):
			f.Class, f.Tries = timeline.RangeCompile, true
		case timeline.Compiles(name):
			f.Class = timeline.RangeCompile
		case timeline.SavesCheckpoint(name):
			f.Class = timeline.RangeSave
		case builtin(name):
			f.Class = timeline.RangeBuiltin
		}
		return f
	case event.KindOperator:
		f.Class, f.Operator = timeline.RangeOperator, strings.Contains(name, "::")
		f.Moves = Movers[name] != timeline.MovesNothing
		f.Backward = strings.HasPrefix(name, "autograd::engine::evaluate_function")
	default:
		f.Class = timeline.RangeNamed
	}
	f.Plain = kind == event.KindAnnotation && !strings.ContainsAny(name, "0123456789")
	if kind == event.KindAnnotation || kind == event.KindOperator {
		f.Phase, f.Opaque = Phase(name), opaque(name)
	}
	switch {
	case f.Phase == "data" || loader(name) || queue(name):
		f.Class = timeline.RangeLoader
	case awaits(name):
		f.Class = timeline.RangeOutside
	case peer(name):
		f.Class = timeline.RangePeer
	case timeline.Compiles(name):
		f.Class = timeline.RangeCompile
	case timeline.SavesCheckpoint(name):
		f.Class = timeline.RangeSave
	}
	return f
}

// OfProgram reports whether overhead, as CUPTI calls it, is not work of the profiler: code is
// loaded or compiled for the program, or a queue is full. The calls in which that happens show it,
// too.
func OfProgram(overhead string) bool {
	return ContainsAny(overhead, []string{"Loading", "Compiler", "COMPILER", "Command Buffer"})
}

// callClass classifies calls of the CUDA, HIP and Level Zero runtimes and drivers by their effect
// on the host.
func callClass(name string) timeline.Range {
	async := strings.Contains(name, "Async")
	switch {
	case strings.Contains(name, "BeginCapture"):
		return timeline.RangeCapture
	case strings.Contains(name, "EndCapture"):
		return timeline.CallCaptured
	case timeline.WaitsForDevice(name), !async && ContainsAny(name, []string{"cudaMemcpy", "cuMemcpy", "hipMemcpy"}):
		return timeline.CallWait
	case ContainsAny(name, []string{
		"Malloc", "Free", "MemAlloc", "HostAlloc", "HostRegister", "HostUnregister",
		"MemCreate", "MemMap", "MemUnmap", "MemSetAccess", "DeviceAlloc", "SharedAlloc", // the last ones of SYCL
	}):
		return timeline.CallAllocate
	case LaunchesWork(name):
		return timeline.CallLaunch
	}
	return timeline.CallOther
}

// windowsSlash parts the paths of frames on Windows.
const windowsSlash = `\`

// IsWindowsFrame reports whether a name is the frame of a Python file on Windows:
// "torch\cuda\__init__.py(219): _lazy_init".
func IsWindowsFrame(name string) bool {
	path, _, ok := strings.Cut(name, ".py(")
	return ok && strings.Contains(path, windowsSlash)
}

// dataModules are parts of paths of Python modules whose iterators hand out data.
var dataModules = []string{
	"torch/utils/data/", "torchdata/", "dataloader", "data_loader", "nvidia/dali/",
	"webdataset/", "datasets/", "streaming/", "loader/", "dataloading/", "/data/", "dataset",
}

// function returns the name of the function of a Python frame.
func function(frame string) string {
	_, name, _ := strings.Cut(frame, "): ")
	return name
}

// queue reports whether a Python frame reads from a queue, which another thread or process fills.
func queue(frame string) bool {
	file, call, ok := strings.Cut(frame, "): ")
	if ok {
		file, _, _ = strings.Cut(file, ".py(")
		return call == "get" && (strings.HasSuffix(file, "queue") || strings.HasSuffix(file, "queues"))
	}
	return strings.HasPrefix(frame, "<built-in method get of _queue.SimpleQueue")
}

// tries reports whether a frame measures which kernel is the fastest: a function
// with a word for measuring in Triton, Inductor, or a module named for autotuning. Others run what
// was chosen.
func tries(frame string) bool {
	path, call, _ := strings.Cut(frame, "): ")
	return timeline.Contains(path, "triton/", "_inductor/", "autotun") && timeline.Contains(call, "bench", "profile")
}

// Trains reports whether only a program that trains has a range of the name: a gradient, a step of
// an optimizer, or one with a word for training. PyTorch's module.train also ends training.
func Trains(name string) bool {
	if strings.HasPrefix(name, "autograd::engine::") || strings.HasPrefix(name, "Optimizer.") {
		return true
	}
	if strings.Contains(name, "torch/nn/modules/") {
		return false
	}
	for w := range words(name) {
		switch w {
		case "train", "trainer", "training", "epoch", "epochs", "learner":
			return true
		}
	}
	return false
}

var versionOfCall = regexp.MustCompile(`_v\d+(?:_ptsz|_ptds)?$`)

// CallName returns the name of a call of CUDA without the version of its ABI.
func CallName(s string) string { return versionOfCall.ReplaceAllString(s, "") }

// SystemCall returns the frame of a call of the operating system.
func SystemCall(name string) string { return name + "()" }

// waitFrame reports whether a frame only waits for the device: the function synchronize of
// PyTorch's device modules, the functions below it, and JAX's block_until_ready.
func waitFrame(frame string) bool {
	if strings.HasPrefix(frame, "<built-in ") {
		return strings.Contains(frame, "_cuda_synchronize") || strings.Contains(frame, "_xpu_synchronize") ||
			strings.HasPrefix(frame, "<built-in method synchronize of ")
	}
	name := function(frame)
	return name == "block_until_ready" || name == "try_to_block" ||
		name == "synchronize" && ContainsAny(frame, deviceModules)
}

// deviceModules are parts of paths of PyTorch's modules of devices.
var deviceModules = []string{"torch/cuda/", "torch/accelerator/", "torch/xpu/", "torch/mtia/"}

// builtin reports whether a frame explains little by itself: it is built into Python, part of its
// standard library or of a library of helpers, or a system call. Its caller explains more.
func builtin(frame string) bool {
	if strings.HasPrefix(frame, "<built-in ") || strings.HasPrefix(frame, "<method ") || strings.HasSuffix(frame, "()") {
		return true
	}
	file, _, ok := strings.Cut(frame, ".py(")
	if i := strings.Index(file, "/lib/python3"); i >= 0 { // a whole path
		_, file, _ = strings.Cut(file[i+len("/lib/"):], "/")
		file = strings.TrimPrefix(strings.TrimPrefix(file, "site-packages/"), "dist-packages/")
	}
	return ok && (slices.Contains(standard, file) || slices.ContainsFunc(standard, func(module string) bool {
		return strings.HasSuffix(module, "/") && strings.HasPrefix(file, module)
	}))
}

// standard are modules of Python, packages of them, and libraries that a program calls for one
// task, as frames name them. Frameworks that run a program's loop are not among them.
var standard = []string{
	"PIL/", "cv2/", "gymnasium/", "librosa/", "matplotlib/", "mlflow/", "nltk/", "numpy/", "pandas/", "psutil/",
	"pyarrow/", "requests/", "scipy/", "skimage/", "sklearn/", "soundfile", "tqdm/", "urllib3/", "wandb/", "yaml/",
	"asyncio/", "base64", "collections/", "concurrent/", "configparser", "contextlib", "copy", "csv", "dataclasses",
	"encodings/", "fnmatch", "fractions", "functools", "gettext", "glob", "gzip", "hashlib", "heapq", "html/", "http/",
	"importlib/", "inspect", "io", "json/", "locale", "logging/", "lzma", "multiprocessing/", "os", "pathlib", "pickle",
	"posixpath", "pprint", "queue", "random", "re", "re/", "selectors", "shutil", "socket", "sqlite3/", "sre_compile",
	"sre_parse", "ssl", "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "tokenize",
	"traceback", "typing", "urllib/", "uuid", "warnings", "xml/", "zipfile",
}

// loader reports whether a range is waiting for data, by the names used in frameworks and programs:
// a word for data beside one for fetching it ("enumerate(DataLoader)", "train_dataloader_next",
// "get_batch", "IteratorGetNext", "wait for input"). Operators have other names.
func loader(name string) bool {
	if strings.Contains(name, "::") {
		return false
	}
	if strings.Contains(name, "EvaluationLoop].") && strings.HasSuffix(name, "_next") { // of Lightning, as "val_next"
		return true
	}
	const data, get, other = 1, 2, 4
	var seen int
	for w := range words(name) {
		seen |= loaderWords[w]
	}
	return seen == data|get
}

// loaderWords are the words that loader uses: for data (1), for fetching it (2), both, and words
// with another meaning (4).
var loaderWords = map[string]int{
	"data": 1, "dataset": 1, "batch": 1, "batches": 1, "minibatch": 1, "input": 1, "inputs": 1, "sample": 1, "samples": 1,
	"shard": 1, "images": 1, "tfrecord": 1, "tfrecords": 1,
	"load": 2, "loader": 2, "loading": 2, "fetch": 2, "fetcher": 2, "fetching": 2, "next": 2, "get": 2, "wait": 2,
	"waiting": 2, "read": 2, "reader": 2, "reading": 2,
	"iter": 2, "iterate": 2, "pipeline": 2, "pipe": 2, "prefetch": 2, "prefetcher": 2, "generator": 2, "feed": 2,
	"feeder": 2, "queue": 2, "dequeue": 2, "pull": 2,
	"dataloader": 3, "dataload": 3, "dataloading": 3, "datapipe": 3, "nextbatch": 3, "iterator": 3, "dali": 3,
	"infeed": 3, "collate": 3,
	"norm": 4, "shape": 4, "size": 4, "grad": 4, "embedding": 4, "embeddings": 4, "mask": 4, "ids": 4, "stats": 4,
	"ptr": 4, "parallel": 4, "layernorm": 4, "output": 4,
	"run": 4, "request": 4, "requests": 4,
	"token": 4, "tokens": 4, "device": 4, "cuda": 4, "gpu": 4, "forward": 4, "backward": 4, "loss": 4, "checkpoint": 4,
}

// eventLoops are parts of the frames of Python that run requests from outside, and wait for them
// themselves; polls are parts of the frames in which they wait, as others do for files and
// processes.
var (
	eventLoops = []string{
		"asyncio/base_events.py", "uvloop.Loop", "zmq/sugar/poll.py", "zmq/sugar/socket.py",
		"_process_input_queue", // of vLLM
		": serve_forever", ": wait_for_termination",
	}
	polls = []string{"selectors.py", "select.epoll", "select.poll", "select.kqueue", "built-in method select.select"}
)

// awaits reports whether a range is waiting for work from outside: a word for waiting or taking
// beside one for requests ("wait for requests", "poll_queries"). One request counts only if the
// range waits for it ("wait_for_request"), because it is more often a collective's: "Request
// wait()".
func awaits(name string) bool {
	const work, wait = 1, 2
	var seen int
	awaited := false
	for w := range words(name) {
		switch w {
		case "for":
			awaited = seen&wait != 0
		case "request", "query", "client", "connection", "prompt", "prompts":
			if awaited {
				seen |= work
			}
		case "requests", "queries", "clients", "connections", "traffic":
			seen |= work
		case "no", "wait", "waiting", "poll", "polling", "idle", "receive", "recv", "accept", "listen":
			seen |= wait
		}
	}
	return seen == work|wait || strings.EqualFold(name, "idle")
}

// words returns the words of a name in lower case: split at characters that are not letters, and
// between lower case and upper case.
func words(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start := -1
		for i, c := range name {
			letter := unicode.IsLetter(c)
			if start >= 0 && (!letter || unicode.IsUpper(c) && !unicode.IsUpper(rune(name[i-1]))) {
				if !yield(strings.ToLower(name[start:i])) {
					return
				}
				start = -1
			}
			if letter && start < 0 {
				start = i
			}
		}
		if start >= 0 {
			yield(strings.ToLower(name[start:]))
		}
	}
}

// peer reports whether a range is waiting for other ranks on the host.
func peer(name string) bool {
	return strings.HasPrefix(name, "gloo:") || strings.HasPrefix(name, "mpi:") || strings.HasPrefix(name, "MPI_") ||
		peerName(strings.ToLower(name)) || strings.Contains(name, "barrier") && !strings.Contains(name, "cuda")
}

// peerName reports whether a function or range waits for other ranks by its name: a barrier, a
// rendezvous, an exchange of Python's objects, or a word for waiting beside one for ranks.
func peerName(lower string) bool {
	for _, ending := range [...]string{"barrier", "rendezvous", "_object", "_object_list"} {
		if strings.HasSuffix(lower, ending) {
			return true
		}
	}
	const ranks, wait = 1, 2
	seen := 0
	for w := range words(lower) {
		switch w {
		case "rank", "ranks", "peer", "peers":
			seen |= ranks
		case "wait", "waiting", "await", "sync", "straggler", "stragglers":
			seen |= wait
		}
	}
	return seen == ranks|wait
}

// peerFrame reports whether a frame waits for other ranks: a function for a barrier, or the wait
// for a collective or a key of PyTorch's store.
func peerFrame(frame string) bool {
	if name := strings.ToLower(function(frame)); name != "" {
		return name == "wait_for_everyone" || peerName(name) // the former of Accelerate
	}
	return strings.Contains(frame, "_distributed_c10d.") && ContainsAny(frame, []string{"wait", "barrier"}) ||
		strings.Contains(frame, "mpi4py.MPI")
}

// WaitingFrames are parts of the names of frames in which a thread waits, or is in the system.
var WaitingFrames = []string{
	"()",
	"wait", "acquire", "sleep", "select", "poll", "recv", "accept", "join", "_worker", "_bootstrap", "run_forever",
	"block_until_ready", "try_to_block",
}
