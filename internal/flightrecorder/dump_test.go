// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const jsonDump = `{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"}},"entries":[
{"record_id":7,"process_group":["0","default_pg"],"collective_seq_id":8,"profiling_name":"nccl:all_reduce","input_sizes":[[2,3]],
 "input_dtypes":["Float"],"state":"started","retired":false,"time_created_ns":1790000000000000000,"timeout_ms":600000,"is_p2p":false},
{"record_id":6,"process_group":["0","default_pg"],"p2p_seq_id":2,"profiling_name":"nccl:recv 0<-1","state":"completed","retired":true,
 "time_created_ns":"1789999999000000000","is_p2p":true},
{"record_id":8},7]}`

func TestReadReturnsEveryFieldOfAnEntry(t *testing.T) {
	d, err := Read("trace_rank_1.json", []byte(jsonDump))
	require.NoError(t, err)
	group := GroupName{"0", "default_pg"}
	assert.Equal(t, &Dump{
		Rank: 1, Version: "2.10", Groups: map[GroupName][]int{group: {0, 1}}, Overwritten: true, Ignored: 2, pause: time.Second,
		Entries: []Entry{{ // in the order of time
			Group: group, Sequence: 2, Backend: "nccl", Operation: "recv", State: Completed, Retired: true, PointToPoint: true, Peer: 1,
			Created: time.Unix(1789999999, 0).UTC(),
		}, {
			Group: group, Sequence: 8, Backend: "nccl", Operation: "all_reduce", InputSizes: [][]int64{{2, 3}}, InputTypes: []string{"Float"},
			State: Started, Peer: -1, Created: time.Unix(1790000000, 0).UTC(), Timeout: 10 * time.Minute,
		}},
	}, d)
}

func TestPickleAndJSONOfOneRankAreEqual(t *testing.T) {
	folder := recorded.Path(t, "flight-recorder-gloo", "missing-w4")
	for _, rank := range []string{"0", "1", "2", "3"} {
		var dumps []*Dump
		for _, name := range []string{"fr_rank_" + rank, "json_rank_" + rank + ".json"} {
			data, err := os.ReadFile(filepath.Join(folder, name))
			require.NoError(t, err)
			d, err := Read(name, data)
			require.NoError(t, err)
			for i := range d.Entries {
				assert.Equal(t, name[0] == 'f', len(d.Entries[i].Frames) > 0)
				d.Entries[i].Frames = nil // JSON has no stacks
			}
			dumps = append(dumps, d)
		}
		assert.Equal(t, dumps[0], dumps[1])
	}
}

func TestRankOf(t *testing.T) {
	for path, want := range map[string]int{
		"/tmp/nccl_trace_rank_0": 0, "comm_lib_trace_rank_127": 127, "x/json_rank_3.json": 3, "dump5.pkl": 5, "12": 12,
		"nccl_trace_rank_": -1, "truth.json": -1, "rank_99999999": -1,
	} {
		got, ok := RankOf(path)
		assert.Equal(t, want >= 0, ok, path)
		if ok {
			assert.Equal(t, want, got, path)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	pickle := func(body string) string { return "\x80\x02" + body + "." }
	for name, c := range map[string]struct{ path, data, message string }{
		"import of a name":  {"r_0", pickle("cos\nsystem\n(X\x02\x00\x00\x00ls\x85R"), "opcode 0x63 is refused"},
		"protocol 1":        {"r_0", "\x80\x01N.", "protocol 1"},
		"no value":          {"r_0", pickle("0"), "finds no value"},
		"no mark":           {"r_0", pickle("}Nu"), "finds no value"},
		"memo":              {"r_0", pickle("h\x05"), "no value 5 in its memo"},
		"long integer":      {"r_0", pickle("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "exceeds 64 bits"},
		"key":               {"r_0", pickle("}]Ns"), "a key of a dictionary"},
		"truncated":         {"r_0", "\x80\x02}X\xff\x00\x00\x00abc", "ends within a value"},
		"other pickle":      {"r_0", pickle("}"), "not a dump"},
		"other JSON":        {"r_0", `{"traceEvents":[]}`, "not a dump"},
		"text":              {"r_0", "hello", "not a dump"},
		"nothing":           {"r_0", "", "not a dump"},
		"version":           {"r_0", `{"version":"3.0","entries":[]}`, "version 3.0"},
		"unknown rank":      {"dump", `{"version":"2.1","entries":[]}`, "rank is unknown"},
		"JSON with garbage": {"r_0", `{"version":`, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(c.path, []byte(c.data))
			require.ErrorContains(t, err, c.message)
		})
	}
}

func TestReadOfATruncatedDumpIsAnError(t *testing.T) {
	data, err := os.ReadFile(recorded.Path(t, "flight-recorder-nccl", "dead-v2.10", "nccl_trace_rank_0"))
	require.NoError(t, err)
	for n := 2; n < len(data); n++ {
		_, err := Read("rank_0", data[:n])
		require.Error(t, err, n)
	}
}

func TestIntegersOfEveryWidth(t *testing.T) {
	for body, want := range map[string]int64{
		"K\xff": 255, "M\xff\xff": 65535, "J\xff\xff\xff\xff": -1, "\x8a\x00": 0, "\x8a\x01\xff": -1, "\x8a\x02\xff\x00": 255,
		"\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, 1_790_000_000_000_000_000)): 1_790_000_000_000_000_000,
		"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x40\x00":                                        1 << 62,
	} {
		got, err := unpickle([]byte("\x80\x02" + body + "."))
		require.NoError(t, err, "%q", body)
		assert.Equal(t, want, got, "%q", body)
	}
}

func TestAbsurdRanksAreIgnored(t *testing.T) {
	d, err := Read("r_0", []byte(`{"version":"2.10","pg_config":{"1":{"name":"1","ranks":"[0, 1, 4000000000000]"}},"entries":[]}`))
	require.NoError(t, err)
	assert.Equal(t, 2, Analyze([]*Dump{d}).World)
	_, err = Read("r_0", []byte(`{"version":"2.10","rank":4000000000000,"entries":[]}`))
	require.ErrorContains(t, err, "rank is unknown")
}

func TestSniff(t *testing.T) {
	for head, want := range map[string]bool{
		"\x80\x02}q": true, jsonDump[:60]: true, `{"comm_lib_version":""`: true, `{"schemaVersion": 1`: false, "\x80\x07}": false, "": false, "PK": false,
	} {
		assert.Equal(t, want, Sniff([]byte(head)), "%q", head)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(jsonDump))
	f.Add([]byte("\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x03\x00\x00\x002.4X\x07\x00\x00\x00entries](}(X\x09\x00\x00\x00record_idK\x00ueu."))
	f.Add([]byte("\x80\x04\x95\x08\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x07version\x94\x8c\x032.0\x94s."))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, path := range []string{"rank_0", "rank_1"} {
			d, err := Read(path, data)
			if err != nil {
				return
			}
			other := *d
			other.Rank++
			r := Analyze([]*Dump{d, &other})
			for i := range r.Hangs {
				h := &r.Hangs[i]
				if f := h.Finding(); f.Subject == "" || strings.Contains(f.String(), "%!") {
					t.Fatal(f)
				}
			}
		}
	})
}

// A ring of 5,000 entries of one group, an old one of another group, and the operation that hangs.
func TestOldFinishedEntriesAreForgotten(t *testing.T) {
	entry := func(i int, group, state string) string {
		return fmt.Sprintf(`{"record_id": %d, "process_group": [%q, %q], "collective_seq_id": %d, "profiling_name": "nccl:all_reduce",
			"state": %q, "retired": %t, "time_created_ns": %d, "frames": [{"name": "f", "filename": "x.py", "line": 1}]}`,
			i, group, group, i+1, state, state == "completed", int64(i+1)*1e9)
	}
	read := func(rank, n int) *Dump {
		entries := []string{entry(0, "rare", "completed"), entry(1, "hung", "started")}
		for i := range n {
			entries = append(entries, entry(i+10, "world", "completed"))
		}
		d, err := Read(fmt.Sprint("rank_", rank), []byte(`{"version": "2.10", "entries": [`+strings.Join(entries, ",")+`]}`))
		require.NoError(t, err)
		return d
	}
	d := read(0, 5000)
	require.Len(t, d.Entries, 2+maxFinished)
	assert.Equal(t, []string{"rare", "hung", "world"}, []string{d.Entries[0].Group.Name, d.Entries[1].Group.Name, d.Entries[2].Group.Name})
	assert.EqualValues(t, 5010, d.Entries[len(d.Entries)-1].Sequence)
	assert.Equal(t, 9*time.Second, d.pause, "before entries are forgotten")
	stacks := 0
	for i := range d.Entries {
		stacks += len(d.Entries[i].Frames)
	}
	assert.Equal(t, maxStacks, stacks)
}
