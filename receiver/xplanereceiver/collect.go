// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Prefixes of the names of planes.
const (
	hostPlanes = "/host:"
	gpuPlanes  = "/device:GPU:"
	tpuPlanes  = "/device:TPU:"
)

// collect passes the events of a file to a profile.
type collect struct {
	p       *profiletrace.Profile
	space   *space
	process int64
	steps   *plane // whose line of steps is used: all devices of a host have the same ones
	events  int64
	facts   facts
	divided map[uint32]bool // paths of modules whose parts are names, too
	unknown described       // of events whose entry is missing
	nesting nesting
}

// describe reads what the planes state about themselves.
func (c *collect) describe() error {
	c.p.Faults = append(c.p.Faults, c.space.faults...)
	c.p.Meta.Host, c.p.Meta.Framework = c.space.host, event.XLA
	if c.space.lost > 0 {
		c.p.Skipped["entry of a table that is too large (its events have no name)"] += c.space.lost
	}
	var begin, end, absolute int64
	for _, p := range c.space.planes {
		if p.ofJAX() {
			c.p.Meta.Framework = event.JAX
		}
		d := event.Device{}
		for _, b := range p.stats {
			name, v, err := p.decode(b)
			if err != nil {
				return err
			}
			switch name {
			case "jax_version":
				c.p.Meta.Framework = event.JAX
			case "process_id":
				c.process = v.exact
			case "profile_start_time":
				begin = v.exact
			case "profile_stop_time":
				end = v.exact
			case "device_type_string":
				d.Model = v.text
			case "core_count":
				d.Limits.Multiprocessors = v.exact
			case "compute_cap_major":
				d.Limits.Major = v.exact
			case "compute_cap_minor":
				d.Limits.Minor = v.exact
			case "peak_teraflops_per_second":
				d.FLOPRate = v.number * 1e12
			case "peak_hbm_bw_gigabytes_per_second":
				d.Bandwidth = v.number * 1e9
			case "memory_bandwidth":
				d.Bandwidth = cmp.Or(d.Bandwidth, v.number)
			case "device_vendor":
				c.p.Meta.TimingSource = map[string]string{"nvidia": "cupti", "amd": "roctracer"}[strings.ToLower(v.text)]
			}
		}
		if p.ordinal, p.device = ordinalOf(p.name); p.device {
			p.gpu = strings.HasPrefix(p.name, gpuPlanes)
			d.Ordinal = p.ordinal
			if !strings.Contains(p.name, " ") { // a SparseCore's statistics are not the device's
				c.p.Meta.Devices = append(c.p.Meta.Devices, d)
			}
		}
		for _, l := range p.lines {
			absolute = max(absolute, l.start)
			if c.steps == nil && l.name == "Steps" && strings.HasPrefix(p.name, tpuPlanes) {
				c.steps = p
			}
		}
	}
	// Lines count from the begin of the profile, or state the wall clock themselves.
	const wall = 1e18
	switch {
	case absolute > wall && begin > 0 && end >= begin:
		c.p.Window(begin, end)
	case absolute > wall:
	case begin > 0:
		c.p.Meta.Base = begin
		c.p.Window(0, max(0, end-begin))
	default:
		c.p.Faults = append(c.p.Faults, "no start of the profile: times count from 1970")
	}
	return nil
}

// given are names that only JAX gives: of calls, programs (jit_step), and scopes (jit(step)/add).
// Programs of TensorFlow and PyTorch/XLA have others (a_inference_step_12, SyncTensorsGraph.34).
var given = regexp.MustCompile(`^(PjitFunction\(|(jit|pmap)[_(])`)

// ofJAX reports whether the tables have such a name.
func (p *plane) ofJAX() bool {
	for _, d := range p.events {
		if given.MatchString(d.name) {
			return true
		}
	}
	for _, name := range p.names {
		if given.MatchString(name) {
			return true
		}
	}
	return false
}

// ordinalOf returns the number of the device that a plane of this name shows. SparseCores of a TPU are parts of
// it.
func ordinalOf(plane string) (int64, bool) {
	for _, prefix := range []string{gpuPlanes, tpuPlanes, "/device:CUSTOM:"} {
		if rest, ok := strings.CutPrefix(plane, prefix); ok {
			number, _, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseInt(number, 10, 32)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// Rows of devices: rows of GPUs that xprof derived from the others, rows of TPUs with work, and rows
// on which operators contain others.
var (
	derived = map[string]bool{
		"Steps": true, "XLA Modules": true, "XLA Ops": true, "XLA TraceMe": true, "Framework Ops": true,
		"Framework Name Scope": true, "Source code": true, "Source Code": true, "Launch Stats": true,
	}
	working = map[string]bool{"XLA Ops": true, "Async XLA Ops": true, "Sparse Core Ops": true}
	nested  = map[string]bool{"XLA Ops": true, "Sparse Core Ops": true}
)

// event takes one event.
func (c *collect) event(p *plane, l *line, b []byte) error {
	if c.events++; b == nil {
		c.p.Skip("event of more than 1 MiB")
		return nil
	}
	steps := c.steps == p && l.name == "Steps"
	switch {
	case p.gpu && derived[l.name]:
		c.p.Skip("row that was derived from the others (" + l.name + ")")
		return nil
	case p.device && !p.gpu && !working[l.name] && !steps:
		return nil // modules, scopes and counters repeat what operators state
	case !p.device && !strings.HasPrefix(p.name, hostPlanes):
		c.p.Skip("event of a plane without a meaning here")
		return nil
	}
	var offset, duration, id int64
	timed := true
	var stats [][]byte
	if err := each(b, func(num protowire.Number, n uint64, b []byte) {
		switch num {
		case 1:
			id = int64(n)
		case 2:
			offset = int64(n)
		case 3:
			duration = int64(n)
		case 4:
			stats = append(stats, b)
		case 5: // occurrences, which have no time
			timed = false
		}
	}); err != nil {
		return err
	}
	d := p.events[id]
	switch {
	case !timed:
		c.p.Skip("sum of events without times")
		return nil
	case d == nil:
		d = &c.unknown
	}
	switch {
	case offset < -event.MaxTime, offset > math.MaxInt64-max(duration, 0),
		l.start < -event.MaxTime, l.start > event.MaxTime:
		c.p.Skip(event.ErrTimeRange.Error())
		return nil
	}
	if err := c.state(p, d, stats); err != nil {
		return err
	}
	start := l.start + floor(offset)
	end := l.start + floor(offset+duration)
	e := event.Event{Start: start, Duration: end - start, Process: c.process, Detail: c.facts.Detail}
	switch {
	case steps:
		e.Kind, e.Thread = event.KindStep, l.id
		return c.add(&e, "step")
	case p.device:
		return c.activity(&e, d, p, l)
	}
	return c.hostRange(&e, d, l)
}

// floor returns nanoseconds.
func floor(ps int64) int64 {
	if ps%1000 < 0 {
		return ps/1000 - 1
	}
	return ps / 1000
}

// state adds the statistics of the table's entry and of the event itself.
func (c *collect) state(p *plane, d *described, stats [][]byte) error {
	if d.facts == nil {
		d.facts = &facts{}
		for _, b := range d.stats {
			name, v, err := p.decode(b)
			if err != nil {
				return err
			}
			d.facts.add(name, v)
		}
		d.facts.Precision = precision(d.name)
		d.stats = nil
	}
	c.facts = *d.facts
	for _, b := range stats {
		name, v, err := p.decode(b)
		if err != nil {
			return err
		}
		c.facts.add(name, v)
	}
	return nil
}

func (c *collect) add(e *event.Event, name string) error {
	e.Name = c.p.Names.ID(name)
	return c.p.Add(e)
}

// idle are categories of operators in which a device waits for the host.
var idle = []string{"infeed", "outfeed", "host send", "host recv"}

// activity takes an event of a device.
func (c *collect) activity(e *event.Event, d *described, p *plane, l *line) error {
	f := &c.facts
	name := cmp.Or(d.display, d.name)
	if vocabulary.ContainsAny(strings.ToLower(f.category), idle) {
		c.p.Skip("wait of the device for the host (idle)")
		return nil
	}
	e.Kind, e.Device, e.Stream = event.KindKernel, p.ordinal, l.id
	e.Process, e.HasProcess = c.process, true
	if f.correlation > 0 && f.correlation < 1<<event.CorrelationBits {
		e.Correlation = f.correlation
	}
	operator := f.operator
	switch {
	case !p.gpu:
		operator = name
		if strings.Contains(vocabulary.CollectiveName(f.category), "_") {
			e.Detail.Collective = vocabulary.CollectiveName(f.category)
		}
	case f.kind == event.KindMemset || strings.HasPrefix(name, "Memset"):
		e.Kind = event.KindMemset
	case f.kind == event.KindCopy || strings.HasPrefix(name, "Memcpy"):
		e.Kind = event.KindCopy
		if e.Detail.Direction == "" {
			e.Detail.Direction, e.Detail.HostMemory = vocabulary.CopyKind(name)
		}
	}
	if operator != "" {
		e.Detail.Operator = c.p.Names.ID(operator)
	}
	if path := f.modules(); path != "" {
		e.Detail.Modules = c.p.Names.ID(path)
		if !c.divided[e.Detail.Modules] {
			c.divided[e.Detail.Modules] = true
			for part := range strings.SplitSeq(path, "/") {
				c.p.Names.ID(part) // the analysis divides the path
			}
		}
	}
	if nested[l.name] {
		e.Name = c.p.Names.ID(name)
		return c.nesting.put(l, e)
	}
	return c.add(e, name)
}

// modules returns the path of scopes around an operator: scopes of the framework, else the program
// of XLA.
func (f *facts) modules() string {
	path, _, _ := strings.Cut(f.path, ":") // what follows is the type of the operator
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return f.module
}

// result is the type of an operator's result in XLA's text: %fusion.1 = bf16[2048,2048]{1,0}
// fusion(…
var result = regexp.MustCompile(`^%?\S+ = \(?([a-z]+[0-9a-z]*)\[`)

// precision returns the precision of an operator where its result tells: a TPU multiplies f32 in
// parts of bf16, and accumulates in f32.
func precision(text string) string {
	m := result.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return map[string]string{"bf16": "bf16", "f16": "fp16", "s8": "int8", "u8": "int8"}[m[1]]
}

// pythonFrame is a frame of Python's profiler: $file.py:12 function.
var pythonFrame = regexp.MustCompile(`^\$(.+\.py):(\d+) (.+)$`)

// hostRange takes an event of the host.
func (c *collect) hostRange(e *event.Event, d *described, l *line) error {
	f := &c.facts
	name := d.name
	e.Thread = l.id
	if pool := strings.HasPrefix(l.name, "tf_"); pool && f.operator == "" && f.correlation == 0 {
		e.Kind = event.KindOther
	}
	switch {
	case f.HasStep:
		e.Kind = event.KindStep
	case name == "MemoryAllocation" || name == "MemoryDeallocation":
		return c.memory(e, name == "MemoryDeallocation")
	case strings.HasPrefix(name, "$"):
		e.Kind = event.KindFrame
		if m := pythonFrame.FindStringSubmatch(name); m != nil {
			name = m[1] + "(" + m[2] + "): " + m[3]
		} else {
			name = name[1:]
		}
	case f.correlation > 0:
		e.Kind = event.KindRuntime
		if f.correlation < 1<<event.CorrelationBits {
			e.Correlation = f.correlation
		}
	case f.operator != "":
		e.Kind, name = event.KindOperator, f.operator
	case e.Duration == 0, strings.HasPrefix(name, "end: "), strings.HasPrefix(name, "ThreadpoolListener::"):
		return nil // marks of XLA
	case e.Kind == event.KindOther:
	case strings.HasPrefix(name, "PjitFunction("):
		e.Kind = event.KindOperator
		l.runtimeTo = max(l.runtimeTo, e.End())
	case strings.HasPrefix(name, "Wait for ") && strings.HasSuffix(name, " holds"): // of a buffer, in XLA's client
		e.Kind = event.KindOther
	case strings.Contains(name, "::") || e.Start < l.runtimeTo:
		e.Kind = event.KindOther
		l.runtimeTo = max(l.runtimeTo, e.End())
	default:
		e.Kind = event.KindAnnotation
	}
	return c.add(e, name)
}

// memory takes an event of a device's allocator, as GPU_0_bfc.
func (c *collect) memory(e *event.Event, freed bool) error {
	parts := strings.Split(c.facts.allocator, "_")
	if len(parts) < 2 || parts[0] != "GPU" {
		return nil // of the host
	}
	e.Kind, e.Duration = event.KindMemory, 0
	e.Detail.MemoryDevice = integer(parts[1])
	if freed {
		e.Detail.Bytes = -e.Detail.Bytes
	}
	return c.p.Add(e)
}
