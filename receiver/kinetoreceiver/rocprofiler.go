// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// rocprofiler reads what rocprofv3 writes with --output-format json (ROCprofiler-SDK's tool,
// rocprofv3 --help and its page "Using rocprofv3", output formats): one object per process under
// "rocprofiler-sdk-tool", of which these parts are used, in any order:
//
//	metadata        pid, node.hostname
//	agents          id.handle, type (2: GPU), name, product_name, cu_count, logical_node_type_id (not in older versions)
//	strings         buffer_records: kind and names of operations; marker_api: texts by correlation
//	kernel_symbols  kernel_id, formatted_kernel_name, kernel_name, arch_vgpr_count, accum_vgpr_count, sgpr_count
//	buffer_records  kernel_dispatch, memory_copy, hip_api, marker_api: records with start_timestamp and end_timestamp, ns
//
// Times count from the start of the machine; the file does not say when that was.
type rocprofiler struct {
	c       *collect
	json    *json.Decoder
	records int64
	pid     int64
	known   *event.ROCm
	gpus    int64 // number of devices so far, used if the file has no numbers, as before ROCm 6.4
	names   []rocKind
	markers map[int64]string
	named   map[string]bool // parts without which records cannot be read, if they were read
	ahead   *os.File        // records that precede one of these parts
}

// rocNaming is the number of parts without which records cannot be read: metadata, agents, strings
// and kernel_symbols.
const rocNaming = 4

type rocKind struct {
	Kind       string   `json:"kind"`
	Operations []string `json:"operations"`
}

type rocHandle struct {
	Handle uint64 `json:"handle"`
}

func (h rocHandle) id() int64 { return int64(h.Handle) }

type rocDim struct {
	X int64 `json:"x"`
	Y int64 `json:"y"`
	Z int64 `json:"z"`
}

func (d rocDim) list() [3]int64 { return [3]int64{d.X, d.Y, d.Z} }

// rocRecord is a record of any kind; missing fields are zero.
type rocRecord struct {
	Kind        int   `json:"kind"`
	Operation   int   `json:"operation"`
	Thread      int64 `json:"thread_id"`
	Correlation struct {
		Internal uint64 `json:"internal"`
	} `json:"correlation_id"`
	Start    int64     `json:"start_timestamp"`
	End      int64     `json:"end_timestamp"`
	Bytes    *int64    `json:"bytes"`
	To       rocHandle `json:"dst_agent_id"`
	From     rocHandle `json:"src_agent_id"`
	Stream   rocHandle `json:"stream_id"`
	Dispatch struct {
		Agent     rocHandle `json:"agent_id"`
		Queue     rocHandle `json:"queue_id"`
		Kernel    uint64    `json:"kernel_id"`
		Group     int64     `json:"group_segment_size"`
		Workgroup rocDim    `json:"workgroup_size"`
		Grid      rocDim    `json:"grid_size"`
	} `json:"dispatch_info"`
}

// readROCm reads what rocprofv3 wrote; ok is false if the file is of another profiler.
func (c *collect) readROCm(from *bufio.Reader) (st chromejson.Stats, ok bool, err error) {
	if !isRocprofiler(from) {
		return st, false, nil
	}
	c.p.SetSource(profiletrace.Source{Scope: scopeName, Root: "rocprofv3 profile", Service: "rocprofv3"})
	roc := &rocprofiler{c: c}
	defer roc.discard()
	err = roc.read(from)
	st.Events, st.Bytes = roc.records, roc.json.InputOffset()
	c.meta.maker = makerAMD
	c.meta.faults = append(c.meta.faults,
		"times count from the start of the machine, shown as 1970: the file does not say when that was")
	return st, true, err
}

// isRocprofiler reports whether a file starts with the key of such files.
func isRocprofiler(b *bufio.Reader) bool {
	head, _ := b.Peek(64)
	return bytes.Contains(head, []byte(`"rocprofiler-sdk-tool"`))
}

// spaced replaces control bytes by spaces. rocprofv3 writes the bytes of arguments that it takes for
// texts, which JSON does not allow; outside texts, they are white space.
type spaced struct{ from io.Reader }

func (s spaced) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	for i, c := range b[:n] {
		if c < ' ' {
			b[i] = ' '
		}
	}
	return n, err
}

// read passes the file's records to the collector's profile.
func (r *rocprofiler) read(from io.Reader) error {
	r.json = json.NewDecoder(spaced{from})
	r.json.UseNumber()
	err := r.object(func(key string) error {
		if key != "rocprofiler-sdk-tool" {
			return r.pass()
		}
		return r.processes()
	})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the file ends at byte %d, after %d records", ErrTruncated, r.json.InputOffset(), r.records)
	case err != nil:
		if _, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("%w at byte %d, after %d records: %w", ErrSyntax, r.json.InputOffset(), r.records, err)
		}
	}
	return err
}

// processes returns a list, or a single object in older versions.
func (r *rocprofiler) processes() error {
	t, err := r.json.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		return r.process(r.fields)
	case json.Delim('['):
		for r.json.More() {
			if err := r.process(r.object); err != nil {
				return err
			}
		}
		_, err = r.json.Token()
		return err
	}
	return fmt.Errorf("%w: rocprofiler-sdk-tool is %v", ErrSyntax, t)
}

// process reads a process: numbers and names are its own.
func (r *rocprofiler) process(parts func(func(key string) error) error) error {
	r.known, r.markers, r.named = event.NewROCm(), map[int64]string{}, map[string]bool{}
	r.names, r.pid, r.gpus = nil, 0, 0
	if err := parts(r.part); err != nil {
		return err
	}
	return r.replay()
}

func (r *rocprofiler) object(field func(key string) error) error {
	if there, err := r.open('{', "an object"); !there {
		return err
	}
	return r.fields(field)
}

// open reads the bracket with which a value begins; null is as if it were not there.
func (r *rocprofiler) open(bracket json.Delim, what string) (there bool, err error) {
	t, err := r.json.Token()
	if err == nil && t != bracket && t != nil {
		err = fmt.Errorf("%w at byte %d: %v where %s is expected", ErrSyntax, r.json.InputOffset(), t, what)
	}
	return err == nil && t != nil, err
}

// decode reads a value; ok is false if its types are others, which is counted. The rest of it is
// read all the same.
func (r *rocprofiler) decode(what string, v any) (ok bool, err error) {
	err = r.json.Decode(v)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other {
		r.c.p.Skip(what + " of another form")
		return false, nil
	}
	return err == nil, err
}

// fields reads the rest of an object; field reads or passes over one value.
func (r *rocprofiler) fields(field func(key string) error) error {
	for r.json.More() {
		t, err := r.json.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		if err := field(key); err != nil {
			return err
		}
	}
	_, err := r.json.Token()
	return err
}

// pass skips an unused value, token by token, of any size.
func (r *rocprofiler) pass() error {
	for depth := 0; ; {
		t, err := r.json.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// list calls f for each element of the array that is the value of key.
func list[T any](r *rocprofiler, key string, f func(*T) error) error {
	if there, err := r.open('[', "a list"); !there {
		return err
	}
	for r.json.More() {
		var x T
		ok, err := r.decode(key, &x)
		if ok {
			err = f(&x)
		}
		if err != nil {
			return err
		}
	}
	_, err := r.json.Token()
	return err
}

// maxRocMarkers bounds texts of markers that are remembered.
const maxRocMarkers = 1 << 20

// part reads one field of a process.
func (r *rocprofiler) part(key string) error {
	switch key {
	case "metadata", "agents", "strings", "kernel_symbols":
		r.named[key] = true
	}
	switch key {
	case "metadata":
		var m struct {
			PID  int64 `json:"pid"`
			Node struct {
				Host string `json:"hostname"`
			} `json:"node"`
		}
		_, err := r.decode(key, &m)
		r.pid, r.c.meta.meta.Host = m.PID, m.Node.Host
		return err
	case "agents":
		return list(r, key, func(a *struct {
			ID      rocHandle `json:"id"`
			Type    int       `json:"type"`
			Name    string    `json:"name"`
			Product string    `json:"product_name"`
			Units   int64     `json:"cu_count"`
			Ordinal *int64    `json:"logical_node_type_id"`
		},
		) error {
			gpu := a.Type == 2
			ordinal := r.gpus
			if a.Ordinal != nil {
				ordinal = *a.Ordinal
			}
			if gpu {
				r.gpus++
			}
			r.known.Agent(&r.c.meta.meta, a.ID.id(), ordinal, gpu, a.Name, a.Product, a.Units)
			return nil
		})
	case "strings":
		var s struct {
			Kinds   []rocKind `json:"buffer_records"`
			Markers []struct {
				Key   uint64 `json:"key"`
				Value string `json:"value"`
			} `json:"marker_api"`
		}
		_, err := r.decode(key, &s)
		r.names = s.Kinds
		for _, m := range s.Markers[:min(len(s.Markers), maxRocMarkers)] {
			r.markers[int64(m.Key)] = m.Value
		}
		return err
	case "kernel_symbols":
		return list(r, key, func(k *struct {
			ID        uint64 `json:"kernel_id"`
			Formatted string `json:"formatted_kernel_name"`
			Name      string `json:"kernel_name"`
			Vectors   int64  `json:"arch_vgpr_count"`
			Sums      int64  `json:"accum_vgpr_count"`
			Scalars   int64  `json:"sgpr_count"`
		},
		) error {
			r.known.Kernel(int64(k.ID), cmp.Or(k.Formatted, k.Name),
				event.RocKernel{Vectors: k.Vectors, Accumulators: k.Sums, Scalars: k.Scalars})
			return nil
		})
	case "buffer_records":
		if len(r.named) < rocNaming {
			return r.keep()
		}
		return r.object(r.kind)
	}
	return r.pass()
}

// reader returns what reads a record of one kind; nil if such records are not read.
func (r *rocprofiler) reader(key string) func(e *event.Event, x *rocRecord) (name string) {
	switch key {
	case "kernel_dispatch":
		return r.dispatch
	case "memory_copy":
		return r.copied
	case "hip_api":
		return func(e *event.Event, x *rocRecord) string {
			e.Kind = event.KindRuntime
			return r.operation(x)
		}
	case "marker_api":
		return func(e *event.Event, x *rocRecord) string {
			if e.Kind = event.KindAnnotation; x.End <= x.Start {
				return ""
			}
			return r.markers[int64(x.Correlation.Internal)]
		}
	}
	return nil
}

// kind reads the records of one kind.
func (r *rocprofiler) kind(key string) error {
	add := r.reader(key)
	if add == nil {
		return r.pass()
	}
	return list(r, key, func(x *rocRecord) error {
		r.records++
		e := event.Event{
			Start: x.Start, Duration: x.End - x.Start, Process: r.pid, HasProcess: true, Thread: x.Thread, Device: -1,
			Correlation: int64(x.Correlation.Internal) & (1<<event.CorrelationBits - 1),
		}
		name := add(&e, x)
		if name == "" {
			r.c.p.Skip(key + " without a name or length")
			return nil
		}
		if !e.Kind.Device() && e.Kind != event.KindRuntime {
			e.Correlation = 0
		}
		if e.Kind.Device() && e.Device < 0 {
			r.c.p.Skip("activity of an agent that is not a listed GPU")
			return nil
		}
		if x.Start == 0 {
			r.c.p.Skip("start time missing or no number")
			return nil
		}
		e.Name = r.c.p.Names.ID(name)
		return r.c.p.Add(&e)
	})
}

func (r *rocprofiler) operation(x *rocRecord) string {
	if x.Kind < 0 || x.Kind >= len(r.names) || x.Operation < 0 || x.Operation >= len(r.names[x.Kind].Operations) {
		return ""
	}
	return r.names[x.Kind].Operations[x.Operation]
}

func (r *rocprofiler) dispatch(e *event.Event, x *rocRecord) string {
	e.Kind = event.KindKernel
	d := &x.Dispatch
	r.known.On(e, d.Agent.id())
	e.Stream = r.c.p.Stream(int64(x.Stream.Handle), int64(d.Queue.Handle))
	return r.known.Launch(&e.Detail, d.Agent.id(), int64(d.Kernel), d.Workgroup.list(), d.Grid.list(), d.Group)
}

func (r *rocprofiler) copied(e *event.Event, x *rocRecord) string {
	e.Kind = event.KindCopy
	r.known.On(e, x.To.id(), x.From.id()) // a copy is on its destination device, otherwise on its source
	e.Stream = r.c.p.Stream(int64(x.Stream.Handle), 0)
	if x.Bytes != nil {
		e.Detail.Bytes, e.Detail.HasBytes = *x.Bytes, true
	}
	name := vocabulary.RocCopy(r.operation(x))
	e.Detail.Direction, _ = vocabulary.CopyKind(name)
	return name
}
