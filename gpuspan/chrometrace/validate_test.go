// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"sort"
)

// record is an event of a trace file as a strict reader sees it.
type record struct {
	Ph   string          `json:"ph"`
	Cat  string          `json:"cat"`
	Name *string         `json:"name"`
	PID  json.RawMessage `json:"pid"`
	TID  json.RawMessage `json:"tid"`
	TS   json.RawMessage `json:"ts"`
	Dur  json.RawMessage `json:"dur"`
	ID   json.RawMessage `json:"id"`
	BP   string          `json:"bp"`
	Args map[string]any  `json:"args"`

	pid, tid, ts, dur int64 // ts and dur in nanoseconds
	index             int
}

type traceFile struct {
	Base   int64
	Events []record
}

// readTrace reads a trace and returns every fault that Perfetto, chrome://tracing or speedscope complain of: JSON that
// is broken or has unknown members, ids that are no integers, times that are no numbers or finer than a nanosecond,
// negative times, slices of one track that overlap without nesting (in the order in which Perfetto sorts them: by
// start, then as in the file), flows whose ends are not paired or that have no slice around them, names given twice.
func readTrace(data []byte) (traceFile, []string) {
	var faults []string
	fault := func(format string, args ...any) {
		if len(faults) < 20 {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	var top struct {
		SchemaVersion int      `json:"schemaVersion"`
		Base          int64    `json:"baseTimeNanoseconds"`
		TraceEvents   []record `json:"traceEvents"`
	}
	if err := json.Unmarshal(data, &top); err != nil {
		return traceFile{}, []string{"JSON: " + err.Error()}
	}
	f := traceFile{Base: top.Base, Events: top.TraceEvents}
	type place struct{ pid, tid int64 }
	slices, flows := map[place][]*record{}, map[string][]*record{}
	names := map[string]bool{}
	for i := range f.Events {
		r := &f.Events[i]
		r.index = i
		if r.Name == nil {
			fault("event %d: no name", i)
			continue
		}
		var err error
		if r.pid, err = integer(r.PID); err != nil {
			fault("event %d: pid %v", i, err)
		}
		if r.Ph != "C" {
			if r.tid, err = integer(r.TID); err != nil {
				fault("event %d: tid %v", i, err)
			}
		}
		if r.ts, err = nanoseconds(r.TS); err != nil && r.Ph != "M" { // metadata has no time
			fault("event %d: ts %v", i, err)
		}
		switch r.Ph {
		case "X":
			if r.dur, err = nanoseconds(r.Dur); err != nil {
				fault("event %d: dur %v", i, err)
			}
			slices[place{r.pid, r.tid}] = append(slices[place{r.pid, r.tid}], r)
		case "s", "f":
			flows[string(r.ID)] = append(flows[string(r.ID)], r)
		case "C":
			for k, v := range r.Args {
				if _, ok := v.(float64); !ok {
					fault("event %d: counter %s is %T", i, k, v)
				}
			}
		case "M":
			key := fmt.Sprint(*r.Name, r.pid, "/", r.tid)
			if names[key] {
				fault("event %d: %s given twice", i, key)
			}
			names[key] = true
		case "i":
		default:
			fault("event %d: unknown phase %q", i, r.Ph)
		}
	}
	for at, rs := range slices {
		sort.SliceStable(rs, func(a, b int) bool { return rs[a].ts < rs[b].ts })
		var stack []*record
		for _, r := range rs {
			for len(stack) > 0 && stack[len(stack)-1].ts+stack[len(stack)-1].dur <= r.ts {
				stack = stack[:len(stack)-1]
			}
			if n := len(stack); n > 0 && r.ts+r.dur > stack[n-1].ts+stack[n-1].dur {
				fault("track %v: %q (event %d) overlaps the end of %q (event %d)", at, *r.Name, r.index, *stack[n-1].Name, stack[n-1].index)
			}
			stack = append(stack, r)
		}
		if !names[fmt.Sprint("thread_name", at.pid, "/", at.tid)] {
			fault("track %v has no name", at)
		}
	}
	for id, ends := range flows {
		if len(ends) != 2 || ends[0].Ph != "s" || ends[1].Ph != "f" {
			fault("flow %s has %d ends", id, len(ends))
			continue
		}
		if ends[0].ts > ends[1].ts {
			fault("flow %s goes back in time", id)
		}
		if ends[1].BP != "e" {
			fault("flow %s does not bind to its slice", id)
		}
		for _, e := range ends {
			held := false
			for _, r := range slices[place{e.pid, e.tid}] {
				held = held || r.ts <= e.ts && (e.ts < r.ts+r.dur || r.dur == 0 && r.ts == e.ts) && r.index < e.index
			}
			if !held {
				fault("flow %s: end %q at %d has no slice around it", id, e.Ph, e.ts)
			}
		}
	}
	return f, faults
}

func integer(raw json.RawMessage) (int64, error) {
	var v int64
	if len(raw) == 0 {
		return 0, fmt.Errorf("is missing")
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return 0, fmt.Errorf("%s is no integer", raw)
	}
	if v < 0 || v > 1<<31-1 {
		return 0, fmt.Errorf("%d does not fit", v)
	}
	return v, nil
}

func nanoseconds(raw json.RawMessage) (int64, error) {
	r, ok := new(big.Rat).SetString(string(raw))
	if !ok {
		return 0, fmt.Errorf("%q is no number", raw)
	}
	r.Mul(r, big.NewRat(1000, 1))
	if !r.IsInt() {
		return 0, fmt.Errorf("%s is finer than a nanosecond", raw)
	}
	if r.Sign() < 0 {
		return 0, fmt.Errorf("%s is negative", raw)
	}
	ns := r.Num().Int64()
	if ns >= 1<<53 {
		return 0, fmt.Errorf("%s does not fit a double", raw)
	}
	return ns, nil
}
