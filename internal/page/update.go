// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"math"
	"net/url"
	"strconv"
	"sync"
)

// maxUpdates is how many states are remembered, as hashes of their rows: browsers that follow the
// page get what has changed since the state that they have.
const maxUpdates = 32

// updates remembers the rows of the states that were sent.
type updates struct {
	mu     sync.Mutex
	number uint64
	sent   []*sentState // the oldest first
	seed   maphash.Seed
}

// sentState has the hashes of the rows of a state by list.
type sentState struct {
	number  uint64
	query   string
	rows    map[string][]uint64
	devices map[string]*sentDevice
}

type sentDevice struct {
	start, step int64
	cells       [][]*float64
}

// lists are the lists of a state that updates send by row.
func lists(s *State) map[string]func(i int) (any, bool) {
	return map[string]func(i int) (any, bool){
		"operations": rowOf(s.Operations), "steps": rowOf(s.Steps), "requests": rowOf(s.Requests),
		"longest": rowOf(s.Longest), "points": rowOf(s.Points), "bins": rowOf(s.Bins),
	}
}

func rowOf[T any](list []T) func(i int) (any, bool) {
	return func(i int) (any, bool) {
		if i < len(list) {
			return &list[i], true
		}
		return nil, false
	}
}

// answer returns the answer to a request for a state.
func (u *updates) answer(s *State, v url.Values) ([]byte, error) {
	have, _ := strconv.ParseUint(v.Get("have"), 10, 64) // 0: the whole state
	v.Del("have")
	return u.encode(s, v.Encode(), have)
}

// encode returns a state as JSON, or what has changed since the state of the number have, if that
// was sent for the same query. In an update a list of rows has new rows, and pairs: the index of
// the first of so many rows of the list before. So have the cells of devices, which are numbers.
func (u *updates) encode(s *State, query string, have uint64) ([]byte, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var base *sentState
	for _, x := range u.sent {
		if x.number == have && x.query == query {
			base = x
		}
	}
	u.number++
	now := &sentState{number: u.number, query: query, rows: map[string][]uint64{}, devices: map[string]*sentDevice{}}
	s.Update = u.number
	whole := *s
	out := map[string]json.RawMessage{}
	for name, row := range lists(s) {
		changed, hashes, err := u.changedRows(row, base, name)
		if err != nil {
			return encode(s) // a number that JSON does not have
		}
		now.rows[name], out[name] = hashes, changed
	}
	devices := make([]any, 0, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		cells := [][]*float64{d.Covered, d.Busy, d.Power, d.Temperature, d.Throttled, d.Memory}
		now.devices[d.ID] = &sentDevice{d.Start, d.Step, cells}
		recent, hashes, err := u.changedRows(rowOf(d.Recent), base, "recent "+d.ID)
		if err != nil {
			return encode(s)
		}
		now.rows["recent "+d.ID] = hashes
		if base != nil {
			devices = append(devices, base.devices[d.ID].changes(d, cells, recent))
		}
	}
	if u.sent = append(u.sent, now); len(u.sent) > maxUpdates {
		u.sent[0] = nil
		u.sent = u.sent[1:]
	}
	if base == nil {
		return encode(s)
	}
	whole.Base, whole.Devices = base.number, nil
	whole.Operations, whole.Steps, whole.Requests, whole.Longest, whole.Points, whole.Bins = nil, nil, nil, nil, nil, nil
	rest, err := encode(&whole)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(rest, &all); err != nil {
		return nil, err
	}
	maps.Copy(all, out)
	if all["devices"], err = json.Marshal(devices); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// changedRows returns a list as runs of rows of the base and new rows, and the hashes of its rows.
func (u *updates) changedRows(row func(int) (any, bool), base *sentState, name string,
) (json.RawMessage, []uint64, error) {
	var hashes []uint64
	var before []uint64
	if base != nil {
		before = base.rows[name]
	}
	at := make(map[uint64]int, len(before))
	for i, h := range before {
		at[h] = i
	}
	out, run := []json.RawMessage{}, [2]int{}
	flush := func() {
		if run[1] > 0 {
			b, _ := json.Marshal(run)
			out = append(out, b)
			run[1] = 0
		}
	}
	for i := 0; ; i++ {
		x, ok := row(i)
		if !ok {
			break
		}
		b, err := json.Marshal(x)
		if err != nil {
			return nil, nil, err
		}
		h := maphash.Bytes(u.seed, b)
		hashes = append(hashes, h)
		old, known := at[h]
		switch {
		case !known:
			flush()
			out = append(out, b)
		case run[1] > 0 && run[0]+run[1] == old:
			run[1]++
		default:
			flush()
			run = [2]int{old, 1}
		}
	}
	flush()
	b, err := json.Marshal(out)
	return b, hashes, err
}

// changes returns what has changed of a device since it was sent, the whole device if it was not.
func (d *sentDevice) changes(now *Device, cells [][]*float64, recent json.RawMessage) any {
	if d == nil || d.step != now.Step || now.Start < d.start {
		return now
	}
	out := *now
	out.Covered, out.Busy, out.Power, out.Temperature, out.Throttled, out.Memory = nil, nil, nil, nil, nil, nil
	out.Recent = nil
	shift, changes := int((now.Start-d.start)/now.Step), make([][]any, len(cells))
	for k, list := range cells {
		keep := 0
		for keep < len(list) && keep+shift < len(d.cells[k]) && equal(list[keep], d.cells[k][keep+shift]) {
			keep++
		}
		changes[k] = []any{}
		if keep > 0 {
			changes[k] = append(changes[k], [2]int{shift, keep})
		}
		for _, v := range list[keep:] {
			changes[k] = append(changes[k], v)
		}
	}
	return struct {
		Device
		Changes [][]any         `json:"changes"` // of covered, busy, power, temperature, throttled, memory
		Newest  json.RawMessage `json:"newest"`  // of recent
	}{out, changes, recent}
}

func equal(a, b *float64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return math.Float64bits(*a) == math.Float64bits(*b)
}
