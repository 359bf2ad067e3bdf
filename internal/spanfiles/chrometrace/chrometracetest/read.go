// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package chrometracetest reads Chrome traces as strictly as the strictest of their viewers, for
// tests.
package chrometracetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"
)

// Record is an event of a trace file, with the fields of the Trace Event Format.
type Record struct {
	Ph   string
	Cat  string
	Name string
	PID  int64
	TID  int64
	Time int64 // nanoseconds since File.Base
	Dur  int64 // nanoseconds, of slices
	ID   string
	Args map[string]any

	index       int
	first, last float64 // start and end in microseconds since the first slice, computed as speedscope does
}

// File is a trace file.
type File struct {
	Base   int64 // unix nanoseconds
	Events []Record

	Models             map[int64]string // models of devices, by ordinal
	Distributed        map[string]int64 // rank, local_rank, world_size
	Service, Job, Host string
}

// Folder reads all files of a folder, by name. A file that a viewer would reject fails the test.
func Folder(t testing.TB, dir string) map[string]File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]File{}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		f, faults := Read(data)
		if len(faults) > 0 {
			t.Fatalf("%s: %v\n%s", p, faults, data)
		}
		out[filepath.Base(p)] = f
	}
	return out
}

// Slices returns the complete events ("X") by name; for equal names, the last.
func (f File) Slices() map[string]Record {
	m := map[string]Record{}
	for _, r := range f.Of("X") {
		m[r.Name] = r
	}
	return m
}

// Of returns the events of a phase, in the order of the file.
func (f File) Of(ph string) []Record {
	return slices.DeleteFunc(slices.Clone(f.Events), func(r Record) bool { return r.Ph != ph })
}

// Tracks returns the names of tracks by pid and tid.
func (f File) Tracks() map[[2]int64]string {
	m := map[[2]int64]string{}
	for _, r := range f.Of("M") {
		if r.Name == "thread_name" {
			m[[2]int64{r.PID, r.TID}], _ = r.Args["name"].(string)
		}
	}
	return m
}

type wire struct {
	Ph   string          `json:"ph"`
	Cat  string          `json:"cat"`
	Name *string         `json:"name"`
	PID  json.RawMessage `json:"pid"`
	TID  json.RawMessage `json:"tid"`
	TS   json.RawMessage `json:"ts"`
	Dur  json.RawMessage `json:"dur"`
	ID   json.RawMessage `json:"id"`
	BP   string          `json:"bp"`
	S    string          `json:"s"`
	Args map[string]any  `json:"args"`
}

// Read reads a trace and returns the faults that Perfetto, chrome://tracing or speedscope would
// report, at most twenty: invalid JSON or unknown members, ids that are not integers, times that
// are not numbers, finer than a nanosecond or negative, slices of one track that overlap without
// nesting (in the order in which Perfetto sorts them: by start, then as in the file; and, as in
// speedscope, when ts and dur are added as doubles), flows whose ends are not paired or have no
// slice around them, tracks without a name or with two.
func Read(data []byte) (File, []string) {
	var top struct {
		SchemaVersion int    `json:"schemaVersion"`
		Format        int    `json:"otelgpuFormat"`
		Base          int64  `json:"baseTimeNanoseconds"`
		TraceEvents   []wire `json:"traceEvents"`

		Devices []struct {
			ID   int64  `json:"id"`
			Name string `json:"name"`
		} `json:"deviceProperties"`
		Distributed map[string]int64 `json:"distributedInfo"`
		Service     string           `json:"service.name"`
		Job         string           `json:"gpu.job.id"`
		Host        string           `json:"host_name"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&top); err != nil {
		return File{}, []string{"JSON: " + err.Error()}
	}
	if d.More() {
		return File{}, []string{"JSON: something follows the trace"}
	}
	c := check{tracks: map[lane][]*Record{}, flows: map[string][]*Record{}, named: map[string]bool{}, begin: math.Inf(1)}
	f := File{
		Base: top.Base, Events: make([]Record, len(top.TraceEvents)), Models: map[int64]string{},
		Distributed: top.Distributed, Service: top.Service, Job: top.Job, Host: top.Host,
	}
	for _, d := range top.Devices {
		f.Models[d.ID] = d.Name
	}
	for i := range top.TraceEvents {
		f.Events[i].index = i
		c.event(&top.TraceEvents[i], &f.Events[i])
	}
	for at, rs := range c.tracks {
		for _, r := range rs {
			r.first -= c.begin
			r.last += r.first
		}
		c.track(at, rs)
	}
	for id, ends := range c.flows {
		c.flow(id, ends)
	}
	return f, c.faults
}

type lane struct{ pid, tid int64 }

type check struct {
	tracks map[lane][]*Record
	flows  map[string][]*Record
	named  map[string]bool
	begin  float64 // of the first slice, in microseconds
	faults []string
}

func (c *check) fault(format string, args ...any) {
	if len(c.faults) < 20 {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

func (c *check) event(w *wire, r *Record) {
	if w.Name == nil {
		c.fault("event %d: no name", r.index)
		return
	}
	r.Ph, r.Cat, r.Name, r.ID, r.Args = w.Ph, w.Cat, *w.Name, string(w.ID), w.Args
	number := func(name string, raw json.RawMessage, read func(json.RawMessage) (int64, error)) int64 {
		n, err := read(raw)
		if err != nil {
			c.fault("event %d: %s %v", r.index, name, err)
		}
		return n
	}
	r.PID = number("pid", w.PID, integer)
	if r.Ph != "C" { // counters belong to a process
		r.TID = number("tid", w.TID, integer)
	}
	if r.Ph != "M" { // metadata has no time
		r.Time = number("ts", w.TS, nanoseconds)
	}
	at := lane{r.PID, r.TID}
	switch r.Ph {
	case "X":
		r.Dur = number("dur", w.Dur, length)
		r.first, _ = strconv.ParseFloat(string(w.TS), 64)
		r.last, _ = strconv.ParseFloat(string(w.Dur), 64)
		c.begin = min(c.begin, r.first)
		c.tracks[at] = append(c.tracks[at], r)
	case "s", "f":
		if r.Ph == "f" && w.BP != "e" {
			c.fault("event %d: flow does not bind to the slice around it", r.index)
		}
		c.flows[r.ID] = append(c.flows[r.ID], r)
	case "C":
		for k, v := range r.Args {
			if _, ok := v.(float64); !ok {
				c.fault("event %d: counter %s is a %T", r.index, k, v)
			}
		}
	case "M":
		key := fmt.Sprint(r.Name, at)
		if c.named[key] {
			c.fault("event %d: %s given twice", r.index, key)
		}
		c.named[key] = true
	case "i":
		if w.S != "t" {
			c.fault("event %d: scope %q", r.index, w.S)
		}
	default:
		c.fault("event %d: unknown phase %q", r.index, r.Ph)
	}
}

func (c *check) track(at lane, rs []*Record) {
	sort.SliceStable(rs, func(a, b int) bool { return rs[a].Time < rs[b].Time })
	var stack []*Record
	for _, r := range rs {
		for len(stack) > 0 && stack[len(stack)-1].end() <= r.Time {
			if top := stack[len(stack)-1]; top.Dur > 0 && top.last > r.first && r.Time < exact {
				c.fault("track %v: as doubles, %q (event %d) ends after %q (event %d) began", at, top.Name, top.index, r.Name,
					r.index)
			}
			stack = stack[:len(stack)-1]
		}
		if n := len(stack); n > 0 && (r.end() > stack[n-1].end() || r.Dur > 0 && r.last > stack[n-1].last &&
			r.end() < exact) {
			c.fault("track %v: %q (event %d) overlaps the end of %q (event %d)", at, r.Name, r.index, stack[n-1].Name,
				stack[n-1].index)
		}
		stack = append(stack, r)
	}
	if !c.named[fmt.Sprint("thread_name", at)] {
		c.fault("track %v has no name", at)
	}
}

func (c *check) flow(id string, ends []*Record) {
	if len(ends) != 2 || ends[0].Ph != "s" || ends[1].Ph != "f" {
		c.fault("flow %s has %d ends", id, len(ends))
		return
	}
	if ends[0].Time > ends[1].Time {
		c.fault("flow %s goes back in time", id)
	}
	for _, e := range ends {
		held := false
		rs := c.tracks[lane{e.PID, e.TID}] // sorted by time
		last := sort.Search(len(rs), func(i int) bool { return rs[i].Time > e.Time })
		for i := last - 1; i >= 0 && !held; i-- {
			r := rs[i]
			held = (e.Time < r.end() || r.Dur == 0 && r.Time == e.Time) && r.index < e.index
		}
		if !held {
			c.fault("flow %s: end %q at %d has no slice around it", id, e.Ph, e.Time)
		}
	}
}

func (r *Record) end() int64 { return r.Time + r.Dur }

func integer(raw json.RawMessage) (int64, error) {
	var v int64
	if len(raw) == 0 {
		return 0, fmt.Errorf("is missing")
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return 0, fmt.Errorf("%s is not an integer", raw)
	}
	if v < 0 || v > 1<<32-1 {
		return 0, fmt.Errorf("%d does not fit", v)
	}
	return v, nil
}

// exact is the time from the base within which doubles resolve nanoseconds well enough that their
// sums are exact, 12 days.
const exact = int64(12 * 24 * time.Hour)

// length reads dur, which may be an eighth of a nanosecond off: see Writer.length.
func length(raw json.RawMessage) (int64, error) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 {
		return nanoseconds(raw)
	}
	ns := math.Round(f * 1000)
	if math.Abs(f*1000-ns) > 0.126 {
		return 0, fmt.Errorf("%s is finer than a nanosecond", raw)
	}
	return int64(ns), nil
}

func nanoseconds(raw json.RawMessage) (int64, error) {
	r, ok := new(big.Rat).SetString(string(raw))
	if !ok {
		return 0, fmt.Errorf("%q is not a number", raw)
	}
	r.Mul(r, big.NewRat(1000, 1))
	if !r.IsInt() {
		return 0, fmt.Errorf("%s is finer than a nanosecond", raw)
	}
	if r.Sign() < 0 {
		return 0, fmt.Errorf("%s is negative", raw)
	}
	if !r.Num().IsInt64() {
		return 0, fmt.Errorf("%s does not fit", raw)
	}
	return r.Num().Int64(), nil
}
