// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/semconv"
)

// Process is the process that a pid of the trace represents. Equal values are one process.
type Process struct {
	Service  string // service.name
	Instance string // service.instance.id; may be empty
	Host     string // host.name; may be empty
	Rank     int64  // gpu.job.rank when HasRank
	HasRank  bool   // Rank is known
	PID      int64  // process.pid; becomes the trace's pid if that is free, 0: unknown

	LocalRank    int64  // gpu.job.local_rank when HasLocalRank
	HasLocalRank bool   // LocalRank is known
	WorldSize    int64  // gpu.job.world_size; 0: unknown
	Job          string // gpu.job.id; may be empty
	Profile      bool   // the spans were read from a profiler's file (gpu.trace.detail)
}

// TrackKind is the kind of a track.
type TrackKind uint8

// Kinds of track, in the order in which viewers should show them.
const (
	Profile     TrackKind = iota // the window of a profiler's file, and of its devices
	Steps                        // steps of a loop
	Host                         // a host thread, or host spans whose thread is unknown
	DeviceSteps                  // steps of a loop as the device ran them
	Stream                       // a stream of a device
)

// Track is the track on which a span is drawn within its process. Equal values are one track.
type Track struct {
	Kind   TrackKind // decides the order of tracks and which fields matter
	Device int64     // gpu.device.ordinal; of streams
	ID     int64     // gpu.stream.id or thread.id; −1: unknown
	Name   string    // thread.name or the loop; may be empty
}

// Event is one span. Zero fields are unknown, unless stated otherwise.
type Event struct {
	Process  Process // process of the span
	Track    Track   // track on which it is drawn
	Name     string  // label of the slice
	Category string  // cat: kernel, gpu_memcpy, gpu_user_annotation, cpu_op …
	Start    int64   // unix nanoseconds
	End      int64   // unix nanoseconds; before Start it counts as Start

	Trace  [16]byte // trace id
	Span   [8]byte  // span id
	Parent [8]byte  // span id of the parent; zero for a root

	Correlation int64 // connects a launch on a host track with work on stream tracks of the same trace; 0: none
	// when the host launched the work, unix nanoseconds; 0: unknown. The arrow starts there, on
	// Parent
	Launched    int64
	DeviceStart int64  // of a step: when the device started it, unix nanoseconds; 0: unknown
	DeviceEnd   int64  // when the device ended it. Such a step is drawn twice, for host and device
	Device      string // hw.id
	Model       string // hw.model of a device's work, for deviceProperties; may be empty

	Kind    string  // span.kind: "server", "client" …; empty is internal
	Status  string  // otel.status_code: "OK" or "ERROR"; empty is unset
	Message string  // description of the status
	Links   []Value // "<trace_id>:<span_id>"

	Args  []Arg  // shown by viewers for the slice: its attributes
	Marks []Mark // its span events
	Scope []Arg  // attributes of the instrumentation scope, which may state the device and the stream
}

// maxLinks of a span become an argument; a batch of thousands of requests would drown the others.
const maxLinks = 64

// Link adds a link to a span. At most 64 links are kept; further ones are dropped.
func (e *Event) Link(trace [16]byte, span [8]byte) {
	if len(e.Links) < maxLinks {
		e.Links = append(e.Links, String(hex.EncodeToString(trace[:])+":"+hex.EncodeToString(span[:])))
	}
}

// Mark is a span event.
type Mark struct {
	Name string // name of the event
	Time int64  // unix nanoseconds
	Args []Arg  // its attributes
}

// Counter is one sample of a device's counter.
type Counter struct {
	Device string  // hw.id; each device is drawn once, as a separate process
	Label  string  // name of that process, such as "gpu0"
	Name   string  // "power"
	Unit   string  // "W"
	Start  int64   // start of the interval of the value, unix nanoseconds; 0: the previous point
	Time   int64   // end of the interval, unix nanoseconds
	Value  float64 // in Unit
}

// Categories (cat) of the PyTorch profiler, which readers of its files expect.
const (
	catKernel         = "kernel"
	catCopy           = "gpu_memcpy"
	catMemset         = "gpu_memset"
	catGPUAnnotation  = "gpu_user_annotation"
	catHostAnnotation = "user_annotation"
	catRuntime        = "cuda_runtime"
	catOperator       = "cpu_op"
	catModule         = "python_function"
	catProfile        = "Trace" // the profiler's own record of its window, which readers skip
)

// Classify sets the track, category, name, correlation, launch and device of a span from its
// attributes in Args; Track.ID is −1 without a stream or thread. It modifies Args: attributes that
// become fields of the event are removed, and attributes with another name in PyTorch's files are
// renamed.
func (e *Event) Classify() {
	at := taken{-1, -1, -1}
	switch s := e.read(&at); s.kind {
	case "":
		e.onHost(&s, at.device)
	case semconv.GPUOperationTypeStep:
		e.onSteps(&s)
	default:
		e.onStream(&s)
	}
	// These arguments are also fields of the event.
	device := e.Track.Kind >= DeviceSteps
	e.blank(at.device, device)
	e.blank(at.stream, device && e.Track.ID >= 0)
	e.blank(at.correlation, e.Correlation != 0)
}

// taken are the indices of arguments that may become fields; −1: there is none.
type taken struct{ device, stream, correlation int }

func (e *Event) blank(i int, field bool) {
	if i >= 0 && field && e.Args[i].Value.kind == kindInt {
		e.Args[i].Key = ""
	}
}

// onHost chooses the track of a span that is not a GPU span. device is the index of the argument of
// that name; −1: there is none.
func (e *Event) onHost(s *stated, device int) {
	e.Track = Track{Kind: Host, ID: s.thread, Name: s.threadName}
	e.Category = hostCategory(e.Name, s.category, e.Correlation)
	if e.Category == catOperator {
		e.rename(string(semconv.GPUFLOPCountKey), "flops")
	}
	if e.Process.Profile && s.thread < 0 && e.Correlation == 0 {
		// Every host range of a file has a thread; events without one are created by the reader of
		// the file.
		e.Category, e.Track = catProfile, Track{Kind: Profile, ID: -1}
		if device >= 0 && e.Args[device].Value.kind == kindInt { // the window of a device
			e.Args[device].Key = "device"
		}
	}
}

func (e *Event) onSteps(s *stated) {
	e.Category = catHostAnnotation
	e.Track = Track{Kind: Host, ID: s.thread, Name: s.threadName}
	if s.thread < 0 {
		e.Track = Track{Kind: Steps, Device: s.device, ID: -1}
	}
	if s.thread < 0 && s.hasDelay && s.step > 0 && max(math.Abs(s.delay), s.step, s.hostStep) < maxSeconds {
		// The span extends from the host's start to the device's end, and such spans overlap if the
		// host runs ahead. The host's part and the device's part do not overlap.
		e.DeviceStart = e.Start + nanoseconds(s.delay)
		e.DeviceEnd = e.DeviceStart + nanoseconds(s.step)
		if s.hostStep > 0 {
			e.End = e.Start + nanoseconds(s.hostStep)
		}
	}
	if n := "ProfilerStep#" + strconv.FormatInt(s.index, 10); s.hasIndex && e.Name != n {
		if s.thread < 0 {
			e.Track.Name = e.Name
		}
		e.Args = append(e.Args, Arg{"loop", String(e.Name)})
		e.Name = n
	}
}

// onStream chooses the track of work on a device.
func (e *Event) onStream(s *stated) {
	switch s.kind {
	case semconv.GPUOperationTypeKernel, semconv.GPUOperationTypeCollective:
		e.Category = catKernel
		if s.kind == semconv.GPUOperationTypeCollective {
			e.messageElements()
		}
		if s.kernel != "" && !mangled(s.kernel) {
			e.Name = s.kernel
			e.rename(string(semconv.GPUKernelNameKey), "")
		}
	case semconv.GPUOperationTypeCopy:
		e.Category = catCopy
		e.rename(string(semconv.GPUIOSizeKey), "bytes")
	case semconv.GPUOperationTypeMemset:
		e.Category = catMemset
		e.rename(string(semconv.GPUIOSizeKey), "bytes")
	default:
		e.Category = catGPUAnnotation
	}
	e.Track = Track{Kind: Stream, Device: s.device, ID: s.stream}
	if s.hasDelay && math.Abs(s.delay) < maxSeconds {
		e.Launched = e.Start - nanoseconds(s.delay)
	}
}

// mangled names stay in the arguments, below the short name of the span: no viewer shows them in a
// readable form, and the demangler of speedscope 1.25 runs out of memory after about a thousand.
func mangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "__Z") || strings.HasPrefix(name, "_R")
}

const maxSeconds = 1e6

func nanoseconds(seconds float64) int64 { return int64(math.Round(seconds * 1e9)) }

// hostCategory distinguishes PyTorch's host events by their names, because their spans have no
// attribute for it: operators are namespace::operator, frames of modules start with nn.Module.
func hostCategory(name, category string, correlation int64) string {
	switch {
	case correlation != 0 || category == semconv.GPUOperationCategoryRuntime:
		return catRuntime
	case strings.HasPrefix(name, "nn.Module: "):
		return catModule
	}
	if namespace, _, ok := strings.Cut(name, "::"); ok && namespace != "" &&
		strings.Trim(namespace, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" {
		return catOperator
	}
	return catHostAnnotation
}

func (e *Event) rename(from, to string) {
	for i := range e.Args {
		if e.Args[i].Key == from {
			e.Args[i].Key = to
		}
	}
}

// ProcessOf returns the process that the attributes of a resource describe.
func ProcessOf(attributes []Arg) Process {
	var p Process
	p.Service, _ = valueOf(attributes, semconv.ServiceNameKey).AsString()
	p.Instance, _ = valueOf(attributes, semconv.ServiceInstanceIDKey).AsString()
	p.Host, _ = valueOf(attributes, semconv.HostNameKey).AsString()
	p.Rank, p.HasRank = valueOf(attributes, semconv.GPUJobRankKey).whole()
	p.PID, _ = valueOf(attributes, semconv.ProcessPidKey).whole()
	p.LocalRank, p.HasLocalRank = valueOf(attributes, semconv.GPUJobLocalRankKey).whole()
	p.WorldSize, _ = valueOf(attributes, semconv.GPUJobWorldSizeKey).whole()
	p.Job, _ = valueOf(attributes, semconv.GPUJobIDKey).AsString()
	p.Profile = slices.ContainsFunc(attributes, func(a Arg) bool { return a.Key == string(semconv.GPUTraceDetailKey) })
	return p
}

// whole returns a whole number of a resource. Texts count, because OTEL_RESOURCE_ATTRIBUTES has no
// other type.
func (v Value) whole() (int64, bool) {
	if s, ok := v.AsString(); ok {
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	return v.AsInt()
}

// elementSizes are sizes in bytes of element types as PyTorch names them in its collectives.
var elementSizes = map[string]int64{
	"Double": 8, "Long": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Byte": 1, "Char": 1, "Bool": 1,
	"Float8_e4m3fn": 1, "Float8_e5m2": 1,
}

// messageElements adds the size of a collective as PyTorch states it, in elements: of the gathered
// whole if gpu.io.size is that, otherwise of the send buffer.
func (e *Event) messageElements() {
	size, _ := valueOf(e.Args, semconv.GPUIOSizeKey).AsInt()
	element := elementSizes[valueOf(e.Args, "dtype").str]
	key := "In msg nelems"
	if n, _ := valueOf(e.Args, "Collective name").AsString(); n == "all_gather" || n == "gather" {
		key = "Out msg nelems"
	}
	if element > 0 && size > 0 && size%element == 0 {
		e.Args = append(e.Args, Arg{key, Int(size / element)})
	}
}
