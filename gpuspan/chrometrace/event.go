// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

// Process is what a pid stands for. Equal values are one process.
type Process struct {
	Service  string // service.name
	Instance string // service.instance.id; may be empty
	Host     string // host.name; may be empty
	Rank     int64  // gpu.job.rank when HasRank
	HasRank  bool   // Rank is known
	PID      int64  // process.pid; becomes the trace's pid when it is free, 0 when not known

	LocalRank    int64  // gpu.job.local_rank when HasLocalRank
	HasLocalRank bool   // LocalRank is known
	WorldSize    int64  // gpu.job.world_size; 0 when not known
	Job          string // gpu.job.id; may be empty
	Profile      bool   // the spans are of a profiler's file (gpu.trace.detail)
}

// TrackKind says what a track stands for.
type TrackKind uint8

// Kinds of track, in the order in which viewers should show them.
const (
	Profile     TrackKind = iota // the window of a profiler's file, and of its devices
	Steps                        // steps of a loop
	Host                         // a host thread, or host spans of which no thread is known
	DeviceSteps                  // steps of a loop as the device ran them
	Stream                       // a stream of a device
)

// Track is where a span is drawn within its process. Equal values are one track.
type Track struct {
	Kind   TrackKind // decides the order of tracks and which fields matter
	Device int64     // gpu.device.ordinal; of streams
	ID     int64     // gpu.stream.id or thread.id; −1 when not known
	Name   string    // thread.name or the loop; may be empty
}

// Event is one span. Zero fields are not known, unless they say otherwise.
type Event struct {
	Process  Process // whose span it is
	Track    Track   // where it is drawn
	Name     string  // what the slice says
	Category string  // cat: kernel, gpu_memcpy, gpu_user_annotation, cpu_op …
	Start    int64   // unix nanoseconds
	End      int64   // unix nanoseconds; before Start it counts as Start

	Trace  [16]byte // trace id
	Span   [8]byte  // span id
	Parent [8]byte  // span id of the parent; zero for a root

	Correlation int64 // ties a launch on a host track to work on stream tracks of the same trace; 0: none
	// when the host launched the work, unix nanoseconds; 0 when not known. The arrow starts there, on Parent
	Launched    int64
	DeviceStart int64  // of a step: when the device began it, unix nanoseconds; 0 when not known
	DeviceEnd   int64  // and ended it. Such a step is drawn twice, as the host and as the device ran it
	Device      string // hw.id
	Model       string // hw.model of a device's work, for deviceProperties; may be empty

	Kind    string  // span.kind: "server", "client" …; empty is internal
	Status  string  // otel.status_code: "OK" or "ERROR"; empty is unset
	Message string  // of the status
	Links   []Value // "<trace_id>:<span_id>"

	Args   []Arg   // what a viewer shows of the slice: its attributes
	Marks  []Mark  // its span events
	Origin *Origin // resource and scope; nil: what Process says

	// What Classify leaves out of the event's fields and args; see exact.go.
	name           string // of the span when renamed: Name is another
	end            int64  // of the span when ended: End is that of its slice
	renamed, ended bool
	absent         bool // Track.Device is made up
	kept           []Arg
}

// Mark is a moment within a span: an event of the span.
type Mark struct {
	Name string
	Time int64 // unix nanoseconds
	Args []Arg // its attributes
}

// Counter is one sample of a device's counter.
type Counter struct {
	Device string  // hw.id: drawn once, in a process of its own
	Label  string  // how that process is called, as "gpu0"
	Name   string  // "power"
	Unit   string  // "W"
	Start  int64   // of the interval that the value is of, unix nanoseconds; 0: since the point before
	Time   int64   // its end, unix nanoseconds
	Value  float64 // in Unit
}
