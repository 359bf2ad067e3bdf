// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// collect passes the events of a trace to a profile.
type collect struct {
	p      *profiletrace.Profile
	meta   metaReader
	event  event.Event
	shapes bool
	opts   Options

	inputs       inputs
	works        works
	counts       []counting            // by name
	layouts      [16]chromejson.Layout // of arguments, by kind
	correlates   bool                  // some event of the file has a correlation
	gradientAt   int                   // position of the previous searchKey in arguments
	pythonAt     int                   // likewise
	withoutFLOPs int                   // operators, of the examined ones
	group        []byte                // identity of a process group, reused
	texts        map[string]int64      // numbers assigned to thread and process ids that are not numbers
	foreign      *producer             // the other writer of the file
	found        int64                 // events that the profile was given
	activities   int64                 // of devices among them
	ranks        mergedRanks
	numbered     map[int64]int64 // ranks, from 1, by process ids that are numbers
	pids         map[int64]int64 // first process id of a device's activities, or of calls: -1
	several      bool            // there are others
	proton       bool            // some events are of Triton's Proton in nanoseconds
}

var (
	stepPrefix   = []byte("ProfilerStep#")
	modulePrefix = []byte("nn.Module: ")
)

// Wants leaves out flows, which repeat the correlation.
func (c *collect) Wants(phase byte) bool {
	return phase != 's' && phase != 't' && phase != 'f'
}

// Event adds one event; unusable ones are counted by reason.
func (c *collect) Event(j *chromejson.Event) error {
	var rank int64
	switch j.Phase {
	case 'X':
		rank, j.PID = c.rankOf(j.PID)
	case 'i', 'I':
		if string(j.Name) == "[memory]" {
			return c.memory(j)
		}
		return nil // marks of the profiler itself
	case 'M':
		c.process(j)
		return nil
	case 'C':
		if c.clock(j) {
			return nil
		}
		c.p.Skip("phase 'C'")
		return nil
	case 0:
		c.p.Skip("event without a phase")
		return nil
	default:
		c.p.Skip("phase " + strconv.QuoteRune(rune(j.Phase)))
		return nil
	}
	if j.Escaped {
		j.Name, j.Cat = chromejson.Text(j.Name), chromejson.Text(j.Cat)
	}
	e := &c.event
	*e = event.Event{Kind: category(j.Cat)}
	name := j.Name
	if e.Kind == kindNone {
		if e.Kind = uncategorised(j.PID, name); e.Kind.Device() {
			j.PID = j.TID // the row is the device; streams are not recorded
			j.TID = nil
		}
	}
	if string(j.Cat) == mtiaCommands {
		e.Kind = mtiaCommand(name)
	}
	own := e.Kind == kindOverhead
	switch e.Kind {
	case kindIgnore:
		switch {
		case string(j.Cat) == "Trace":
			c.window(j)
		case string(j.Name) == "Stream Wait Event" && c.opts.Paths:
			c.streamWait(rank, j.Args)
		}
		return nil
	case kindNone:
		c.p.Skip("event without a category")
		return nil
	case event.KindOther:
		if c.foreign == nil && bytes.HasPrefix(j.TID, warpRow) {
			c.foreign = &withinKernels
		}
	case kindCounters:
		c.p.Skip("range of counters (cuda_profiler_range)")
		return nil
	case kindOverhead:
		if vocabulary.OfProgram(string(name)) {
			return nil
		}
		e.Kind = event.KindFrame
		name = append([]byte(event.ProfilerFrame), name...)
	case event.KindOperator, event.KindAnnotation:
		if bytes.HasPrefix(name, stepPrefix) {
			if n, err := strconv.ParseInt(string(name[len(stepPrefix):]), 10, 64); err == nil {
				e.Kind, e.Detail.Step, e.Detail.HasStep = event.KindStep, n, true
			}
		}
	case event.KindFrame:
		if bytes.HasPrefix(name, modulePrefix) {
			e.Kind = event.KindModule
		}
	case event.KindRuntime:
		c.meta.call(j.Cat, name)
	}
	var ok bool
	if e.Start, ok = chromejson.Micros(j.TS); !ok {
		c.p.Skip("start time missing or no number")
		return nil
	}
	if e.Duration, ok = chromejson.Micros(j.Dur); !ok {
		c.p.Skip("duration missing or no number")
		return nil
	}
	if protonNanoseconds(j) {
		e.Start, e.Duration, c.proton = e.Start/1000, e.Duration/1000, true
	}
	if len(name) == 0 {
		name = j.Cat
	}
	if e.Kind == event.KindAnnotation {
		name = parented(&e.Detail, name)
	}
	e.Name = c.p.Names.Bytes(name) // of frames too: no span shows them, but they may explain idle time
	c.arguments(e, rank, j, name)
	if rank > 0 {
		c.ranks.mark(e, rank)
	}
	if own {
		e.Process, e.Thread = event.ProfilerProcess, 0
	}
	if c.found++; e.Kind.Device() {
		if e.Device < 0 {
			c.p.Skip("activity of a device that has no number")
			return nil
		}
		c.activities++
	}
	return c.p.Add(e)
}

// rankOf returns the number of the rank of a process id in a merged file, and the id without its
// prefix; 0: it has none.
func (c *collect) rankOf(pid []byte) (n int64, rest []byte) {
	if c.numbered != nil {
		if id, ok := chromejson.Int(pid); ok {
			return c.numbered[id], pid
		}
	}
	return c.ranks.cut(pid)
}

// number sets the ranks of a file whose process ids are numbers.
func (c *collect) number(ranks map[int64]int64) {
	c.numbered = ranks
	for _, n := range ranks {
		c.ranks[strconv.FormatInt(n-1, 10)] = n
	}
}

// streamWait reads a wait of a stream for an event, which PyTorch writes with
// enable_cuda_sync_events.
func (c *collect) streamWait(rank int64, args []byte) {
	w := event.StreamWait{On: -1}
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case "device":
			setInt(&w.Device, v)
		case "stream":
			setInt(&w.Stream, v)
		case "correlation":
			setInt(&w.Call, v)
		case "wait_on_stream":
			setInt(&w.On, v)
		case "wait_on_cuda_event_record_corr_id":
			setInt(&w.Record, v)
		}
		return true
	})
	w.Device |= rank << rankBits
	w.Call, w.Record = w.Call|rank<<event.CorrelationBits, w.Record|rank<<event.CorrelationBits
	c.p.StreamWait(w)
}

// window reads the profiler's own record of when it recorded.
func (c *collect) window(j *chromejson.Event) {
	start, ok := chromejson.Micros(j.TS)
	length, is := chromejson.Micros(j.Dur)
	if !ok || !is || length < 0 || start > math.MaxInt64-length {
		return
	}
	c.p.Window(start, start+length)
}

// clock reads a counter of a device's clock: its name contains "clock" or "frequency", and no word
// for memory. The device is the one in its arguments, otherwise its process.
func (c *collect) clock(j *chromejson.Event) bool {
	name := bytes.ToLower(j.Name)
	at, ok := chromejson.Micros(j.TS)
	if !ok || !bytes.Contains(name, []byte("clock")) && !bytes.Contains(name, []byte("frequency")) ||
		bytes.Contains(name, []byte("mem")) {
		return false
	}
	device, _ := chromejson.Int(j.PID)
	var value float64
	chromejson.Fields(j.Args, func(k, v []byte) bool {
		if string(k) == "device" {
			setInt(&device, v)
		} else if value == 0 {
			setFloat(&value, v)
		}
		return true
	})
	c.p.Clock(device, at, value)
	return true
}

// memory adds an event of PyTorch's allocator; events of host memory are omitted.
func (c *collect) memory(j *chromejson.Event) error {
	if n, _ := c.rankOf(j.PID); n > 0 {
		c.p.Skip("event of the allocator, in a file merged from several ranks")
		return nil
	}
	e := &c.event
	*e = event.Event{Kind: event.KindMemory, Process: c.id(j.PID), Thread: c.id(j.TID)}
	var ok bool
	if e.Start, ok = chromejson.Micros(j.TS); !ok {
		c.p.Skip("start time missing or no number")
		return nil
	}
	d := &e.Detail
	d.MemoryDevice = -1
	chromejson.Fields(j.Args, func(k, v []byte) bool {
		switch string(k) {
		case "Bytes":
			d.HasBytes = setInt(&d.Bytes, v)
		case "Device Id":
			setInt(&d.MemoryDevice, v)
		case "Total Allocated":
			d.HasMemoryUsage = setInt(&d.MemoryUsage, v)
		}
		return true
	})
	if d.MemoryDevice < 0 || !d.HasBytes {
		return nil
	}
	return c.p.Add(e)
}

// parented removes the IDs of a span from an annotation's name.
func parented(d *event.Detail, name []byte) []byte {
	if !bytes.Contains(name, []byte("00-")) && !bytes.Contains(name, []byte("trace_id=")) {
		return name
	}
	rest, parent := vocabulary.FindTraceParent(string(name))
	if parent == "" || emit.ParseTraceParent(parent) != nil {
		return name
	}
	d.TraceParent = parent
	return []byte(rest)
}

func (c *collect) arguments(e *event.Event, rank int64, j *chromejson.Event, name []byte) {
	if e.Kind.Device() {
		var device, stream bool
		if e.Kind == event.KindCopy {
			e.Detail.Direction, e.Detail.HostMemory = vocabulary.CopyKind(string(name))
		}
		c.deviceArgs(e, j.Args, &device, &stream)
		if pid, ok := chromejson.Int(j.PID); device && ok && rank == 0 && pid != e.Device {
			c.sole(e.Device, pid, nil)
		}
		if !device {
			if e.Device = c.deviceOf(j.PID); stream && string(j.PID) == "-1" && bytes.Contains(j.Args, []byte(`"op_name"`)) {
				e.Device = 0 // ONNX Runtime does not record the device
			}
		}
		if !stream {
			e.Stream = c.id(j.TID)
		}
		return
	}
	e.Process, e.Thread = c.id(j.PID), c.id(j.TID)
	switch e.Kind {
	case event.KindRuntime:
		if c.runtimeArgs(e, j.Args); e.Correlation != 0 && rank == 0 {
			c.sole(-1, e.Process, j.Args)
		}
	case event.KindFrame:
		e.Correlation = pythonID.number(j.Args, &c.pythonAt)
	case event.KindOperator:
		c.operatorArgs(e, name, j.Args)
	case event.KindAnnotation, event.KindStep:
		if e.Detail.TraceParent == "" {
			annotationArgs(&e.Detail, j.Args)
		}
	}
}

// sole notes that calls, or activities of one device, are of several processes: a file was merged
// from several ranks. Calls in the row of the device that their arguments name are of its driver.
func (c *collect) sole(row, pid int64, args []byte) {
	switch first, ok := c.pids[row]; {
	case !ok && c.pids == nil:
		c.pids = map[int64]int64{row: pid}
	case !ok:
		c.pids[row] = pid
	case first != pid && !c.several && (row >= 0 || deviceArg(args) != pid):
		c.several = true
		c.meta.faults = append(c.meta.faults, fmt.Sprintf("the file seems to be merged from several ranks, "+
			"whose process IDs (such as %d and %d) do not tell devices and calls apart: findings may be wrong "+
			"(convert the files of the ranks, or give each process ID a prefix with its rank, such as \"[rank0] 4000\")",
			first, pid))
	}
}

// deviceArg returns the device in the arguments of an event; -1: they have none.
func deviceArg(args []byte) int64 {
	device := int64(-1)
	chromejson.Fields(args, func(k, v []byte) bool {
		return string(k) != "device" || !setInt(&device, v)
	})
	return device
}

// deviceOf returns the device of a row: the number itself, or the one at the end of "GPU 3". For a
// row with another name, such as "stream 3", the device is unknown: the result is below zero.
func (c *collect) deviceOf(pid []byte) int64 {
	name := strings.ToLower(string(unquote(pid)))
	if strings.Contains(name, "stream") || name == "" || name == "null" {
		return -1
	}
	return c.id(pid)
}

// id returns a process or thread as a number: the number itself, the one at the end of "stream 7",
// otherwise a negative one, which equals no real one.
func (c *collect) id(v []byte) int64 {
	if n, ok := chromejson.Int(v); ok {
		return n
	}
	s := string(unquote(v))
	if n, err := strconv.ParseInt(s[strings.LastIndexByte(s, ' ')+1:], 10, 64); err == nil {
		return n
	}
	n, ok := c.texts[s]
	if !ok && len(c.texts) < maxTexts {
		n = -1000 - int64(len(c.texts))
		c.texts[s] = n
	}
	return n
}

// maxTexts bounds the table of ids that are no numbers.
const maxTexts = 1 << 16

func (c *collect) Meta(key, value []byte) error {
	c.meta.field(string(key), value)
	return nil
}
