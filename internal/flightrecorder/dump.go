// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxSize is the size in bytes above which a file is refused. A dump of 20,000 entries with stacks
// has about 60 MB.
const MaxSize = 256 << 20

// maxRanks limits the ranks of a job, which Analyze counts one by one. Larger numbers in a dump are
// ignored.
const maxRanks = 1 << 20

// ErrNotADump means that a file is something else. Every other error is about a dump that cannot be
// read.
var ErrNotADump = errors.New("not a dump of PyTorch's flight recorder")

// Dump is what one rank recorded.
type Dump struct {
	Rank    int
	Version string // of the format, such as 2.10
	Groups  map[GroupName][]int
	// In the order in which they were recorded: all that are not finished, and the newest of each group.
	Entries []Entry
	// Whether the ring has overwritten entries: the rank entered collectives that are not in
	// Entries.
	Overwritten bool
	Ignored     int           // entries that could not be read
	pause       time.Duration // the longest time between two entries that were read; 0: as in Entries
	// When the file was written; zero if unknown. Read leaves it to the caller.
	Written time.Time
}

// GroupName identifies a process group. The name is a number that PyTorch counts or a hash, the
// description is the user's or the framework's, such as TP_GROUP_1.
type GroupName struct{ Name, Description string }

// String returns the description if it says something, otherwise the name.
func (g GroupName) String() string {
	if g.Description == "" || g.Description == "undefined" {
		return g.Name
	}
	return g.Description
}

// Entry is a collective or a point-to-point operation of one rank.
type Entry struct {
	Group       GroupName
	Sequence    int64 // number of the collective within its group, from 1; of the point-to-point operation if PointToPoint
	Backend     string
	Operation   string // such as all_reduce
	InputSizes  [][]int64
	OutputSizes [][]int64
	InputTypes  []string
	OutputTypes []string
	State       State
	// The rank no longer waits for the entry. Gloo retires operations that failed as well.
	Retired      bool
	PointToPoint bool
	Peer         int // rank within the group that a point-to-point operation names, -1 if none
	Created      time.Time
	Timeout      time.Duration // 0 if unknown
	Frames       []Frame       // innermost first; empty in JSON dumps
}

// State is how far an entry is. Gloo reports Scheduled for every entry.
type State string

// States.
const (
	Scheduled State = "scheduled"
	Started   State = "started"
	Completed State = "completed"
)

// Frame is one line of a Python stack.
type Frame struct {
	Function, File string
	Line           int64
}

// String returns the frame as file:line function.
func (f Frame) String() string {
	return fmt.Sprintf("%s:%d %s", filepath.Base(strings.ReplaceAll(f.File, `\`, "/")), f.Line, f.Function)
}

// finished reports whether the rank has left the operation.
func (e *Entry) finished() bool { return e.State == Completed || e.Retired }

// rankAtEnd matches the rank with which PyTorch, and its copies for other vendors, end the name of
// a dump.
var rankAtEnd = regexp.MustCompile(`(?:^|[^0-9])([0-9]{1,7})(?:\.json|\.pkl|\.pickle)?$`)

// RankOf returns the rank in the name of a dump's file.
func RankOf(path string) (int, bool) {
	m := rankAtEnd.FindStringSubmatch(filepath.Base(path))
	if m == nil {
		return 0, false
	}
	rank, err := strconv.Atoi(m[1])
	return rank, err == nil
}

// Sniff reports whether the first bytes of a file may belong to a dump.
func Sniff(head []byte) bool {
	if len(head) > 2 && head[0] == opProto && head[1] >= 2 && head[1] <= 5 {
		return true
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	return len(text) > 0 && text[0] == '{' && (bytes.Contains(text, []byte(`"comm_lib_version"`)) ||
		bytes.Contains(text, []byte(`"nccl_version"`)) || bytes.Contains(text, []byte(`"pg_config"`)) ||
		bytes.Contains(text, []byte(`"collective_seq_id"`)))
}

// Read reads a dump. The rank is taken from the dump if it states one, otherwise from the name of
// its file.
func Read(path string, data []byte) (*Dump, error) {
	if len(data) > MaxSize {
		return nil, tooLarge(int64(len(data)))
	}
	var root any
	var err error
	switch {
	case len(data) > 0 && data[0] == opProto:
		root, err = unpickle(data)
	case bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")):
		root, err = unmarshal(data)
	default:
		return nil, ErrNotADump
	}
	if err != nil {
		return nil, err
	}
	top, ok := root.(map[string]any)
	if !ok {
		return nil, ErrNotADump
	}
	entries, ok := top["entries"].(*list)
	version := text(top["version"])
	if !ok || version == "" {
		return nil, ErrNotADump
	}
	if major, _, _ := strings.Cut(version, "."); major != "1" && major != "2" {
		return nil, fmt.Errorf("version %s of the flight recorder's format is not supported (1.x and 2.x are)", version)
	}
	d := &Dump{Version: version, Groups: groups(top["pg_config"])}
	if d.Rank, ok = RankOf(path); !ok {
		d.Rank = -1
	}
	if rank, ok := integer(top["rank"]); ok {
		d.Rank = int(rank)
	}
	if d.Rank < 0 || d.Rank >= maxRanks {
		return nil, errors.New("the rank is unknown (the name of a dump ends with its rank, as nccl_trace_rank_3)")
	}
	d.read(entries.items)
	return d, nil
}

func tooLarge(size int64) error {
	return fmt.Errorf("the dump has %d MiB (at most %d are read; lower TORCH_FR_BUFFER_SIZE)", size>>20, MaxSize>>20)
}

func (d *Dump) read(entries []any) {
	first := int64(math.MaxInt64)
	for _, v := range entries {
		fields, ok := v.(map[string]any)
		if !ok {
			d.Ignored++
			continue
		}
		if id, ok := integer(fields["record_id"]); ok {
			first = min(first, id)
		}
		e, ok := entry(fields)
		if !ok {
			d.Ignored++
			continue
		}
		d.Entries = append(d.Entries, e)
	}
	d.Overwritten = first > 0 && first != math.MaxInt64
	slices.SortStableFunc(d.Entries, func(a, b Entry) int { return a.Created.Compare(b.Created) })
	d.trim()
}

// What is kept of a rank, so that the dumps of thousands of ranks fit into memory.
const (
	maxFinished = 128 // newest finished entries of a group
	maxStacks   = 64  // newest entries with frames
)

// trim forgets old entries that are finished, and the frames of all but the newest entries.
func (d *Dump) trim() {
	d.pause = pause(d.Entries)
	finished := map[GroupName]int{}
	var kept []Entry
	for i := range slices.Backward(d.Entries) {
		e := d.Entries[i]
		if e.Retired {
			finished[e.Group]++
		}
		if e.Retired && finished[e.Group] > maxFinished {
			continue
		}
		if len(kept) >= maxStacks {
			e.Frames = nil
		}
		kept = append(kept, e)
	}
	slices.Reverse(kept)
	d.Entries = slices.Clip(kept)
}

// pause returns the longest time between two entries.
func pause(entries []Entry) (longest time.Duration) {
	for i := 1; i < len(entries); i++ {
		longest = max(longest, entries[i].Created.Sub(entries[i-1].Created))
	}
	return longest
}

// unmarshal returns JSON in the form that unpickle returns.
func unmarshal(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return plain(v), nil
}

func plain(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
		return &list{items: v}
	case map[string]any:
		for name := range v {
			v[name] = plain(v[name])
		}
		return v
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	default:
		return v
	}
}

// groups reads pg_config, which maps a group's name to its members, written as "[0, 1, 2]". Gloo
// has one group with an empty name there, which is not used.
func groups(v any) map[GroupName][]int {
	known := map[GroupName][]int{}
	config, _ := v.(map[string]any)
	for name, v := range config {
		fields, _ := v.(map[string]any)
		if n := text(fields["name"]); n != "" {
			name = n
		}
		if name == "" {
			continue
		}
		var members []int
		for _, part := range strings.FieldsFunc(text(fields["ranks"]), func(r rune) bool { return r < '0' || r > '9' }) {
			if rank, err := strconv.Atoi(part); err == nil && rank < maxRanks {
				members = append(members, rank)
			}
		}
		if ranks, ok := fields["ranks"].(*list); ok {
			for _, r := range ranks.items {
				if rank, ok := integer(r); ok && rank >= 0 && rank < maxRanks {
					members = append(members, int(rank))
				}
			}
		}
		if len(members) > 0 {
			known[GroupName{name, text(fields["desc"])}] = members
		}
	}
	return known
}

func entry(fields map[string]any) (Entry, bool) {
	e := Entry{
		InputSizes: shapes(fields["input_sizes"]), OutputSizes: shapes(fields["output_sizes"]),
		InputTypes: texts(fields["input_dtypes"]), OutputTypes: texts(fields["output_dtypes"]),
		State: State(text(fields["state"])), Peer: -1,
	}
	e.Retired, _ = fields["retired"].(bool)
	e.PointToPoint, _ = fields["is_p2p"].(bool)
	if names := texts(fields["process_group"]); len(names) > 0 {
		e.Group.Name = names[0]
		if len(names) > 1 {
			e.Group.Description = names[1]
		}
	}
	sequence := fields["collective_seq_id"]
	if sequence == nil {
		sequence = fields["seq_id"] // until version 2.0
	}
	if e.PointToPoint {
		sequence = fields["p2p_seq_id"]
	}
	var known bool
	e.Sequence, known = integer(sequence)
	e.operation(text(fields["profiling_name"]))
	if created, ok := integer(fields["time_created_ns"]); ok {
		e.Created = time.Unix(0, created).UTC()
	}
	if ms, ok := integer(fields["timeout_ms"]); ok && ms > 0 && ms < math.MaxInt64/int64(time.Millisecond) {
		e.Timeout = time.Duration(ms) * time.Millisecond
	}
	if frames, ok := fields["frames"].(*list); ok {
		for _, v := range frames.items {
			f, _ := v.(map[string]any)
			line, _ := integer(f["line"])
			e.Frames = append(e.Frames, Frame{text(f["name"]), text(f["filename"]), line})
		}
	}
	return e, known && e.Group.Name != "" && e.Operation != ""
}

// operation reads a name such as "nccl:all_reduce", "nccl:send 0->1" or "nccl:recv 1<-0".
func (e *Entry) operation(name string) {
	backend, rest, ok := strings.Cut(name, ":")
	if !ok {
		backend, rest = "", name
	}
	e.Backend = backend
	e.Operation, rest, _ = strings.Cut(rest, " ")
	for _, arrow := range []string{"->", "<-"} {
		if _, peer, ok := strings.Cut(rest, arrow); ok {
			if n, err := strconv.Atoi(strings.TrimSpace(peer)); err == nil {
				e.Peer = n
			}
		}
	}
	if e.Operation == "send" || e.Operation == "recv" {
		e.PointToPoint = true
	}
}

func text(v any) string {
	s, _ := v.(string)
	return strings.ToValidUTF8(s, "�")
}

// integer reads a number, which JSON dumps write as text in places.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	default:
		return 0, false
	}
}

func texts(v any) (all []string) {
	l, _ := v.(*list)
	if l == nil {
		return nil
	}
	for _, item := range l.items {
		all = append(all, text(item))
	}
	return all
}

func shapes(v any) (all [][]int64) {
	l, _ := v.(*list)
	if l == nil {
		return nil
	}
	for _, item := range l.items {
		dims, _ := item.(*list)
		if dims == nil {
			continue
		}
		shape := make([]int64, 0, len(dims.items))
		for _, d := range dims.items {
			if n, ok := integer(d); ok {
				shape = append(shape, n)
			}
		}
		all = append(all, shape)
	}
	return all
}
