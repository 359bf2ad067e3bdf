// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lineOf is a line as Inspector of NCCL 2.28 writes it.
func lineOf(rank, ranks, sn int, micros uint64) string {
	return fmt.Sprintf(`{"header":{"id":"0xab","rank":%d,"n_ranks":%d,"nnodes":2},"metadata":{"inspector_output_format_version":"v4.0",`+
		`"git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1790003000319428,"hostname":"n","pid":%d},`+
		`"coll_perf":{"coll":"AllReduce","coll_sn":%d,"coll_msg_size_bytes":4096,"coll_exec_time_us":%d,`+
		`"coll_timing_source":"kernel_gpu","coll_algobw_gbs":4.6,"coll_busbw_gbs":6.9}}`, rank, ranks, 100+rank, sn, micros)
}

func TestLinesAreReadWhateverTheirForm(t *testing.T) {
	want := Record{
		&Source{
			Comm: CommID{"0xab", 4}, Nodes: 2, Rank: 1, Process: Process{"n", 101}, Operation: "all_reduce", Peer: -1, Device: true,
		}, 7, 4096, 300, 1790003000319428,
	}
	compact := lineOf(1, 4, 7, 300)
	spaced := strings.ReplaceAll(strings.ReplaceAll(compact, ":", ": "), ",", ", ")
	var p Parser
	for range 3 { // the second time, the text is compared
		for _, text := range []string{compact, spaced} {
			got, err := p.Parse([]byte(text))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
	}
	require.Len(t, p.forms, 1, "only lines without spaces have a form")
	got, err := p.Parse([]byte(lineOf(1, 4, 8, 12)))
	require.NoError(t, err)
	assert.Equal(t, []uint64{8, 12}, []uint64{got.Sequence, got.Micros})
	assert.Same(t, p.forms[0].source, got.Source)

	got, err = p.Parse([]byte(strings.NewReplacer("coll_perf", "p2p_perf", `"coll":"AllReduce"`, `"p2p":"Send","p2p_peer":3`, "coll_", "p2p_",
		`"rank"`, `"comm_name":"pp","rank"`).Replace(compact)))
	require.NoError(t, err)
	assert.Equal(t, []any{"send", 3, "pp"}, []any{got.Operation, got.Peer, got.CommName})
}

// batchOf returns lines as versions 4.3 and 4.4 write them: the first one has the origin of the
// others.
func batchOf(rank int, proxies int, bodies ...string) string {
	header, _, _ := strings.Cut(lineOf(rank, 4, 0, 0), `"coll_perf"`)
	return strings.Replace(header, "v4.0", "v4.4", 1) + fmt.Sprintf(
		`"dump_stats":{"coll_records":%d,"coll_dropped_total":0,"coll_dropped_since_last_dump":0,"p2p_records":0,"proxy_records":%d}}`+"\n",
		len(bodies), proxies) + strings.Join(bodies, "")
}

func bodyOf(sn int) string {
	_, body, _ := strings.Cut(lineOf(0, 4, sn, 5), `"coll_perf"`)
	return `{"coll_perf"` + strings.Replace(body, `"coll_sn"`, `"coll_algo":"RING","coll_proto":"LL","coll_sn"`, 1) + "\n"
}

func TestLinesOfABatchHaveTheOriginOfItsFirstLine(t *testing.T) {
	proxy := `{"proxy_trace":{"record_type":"proxy_op","record_sn":1,"parent_type":"coll","rank":1}}` + "\n"
	for name, test := range map[string]struct {
		text    string
		want    [][2]int // ranks and numbers
		problem string
	}{
		"two communicators": {
			batchOf(1, 1, bodyOf(7), bodyOf(8)) + proxy + batchOf(3, 0) + batchOf(2, 0, bodyOf(9)) + batchOf(1, 0, bodyOf(9)),
			[][2]int{{1, 7}, {1, 8}, {2, 9}, {1, 9}},
			"",
		},
		"4.2: each line has its origin": {batchOf(1, 0) + lineOf(3, 4, 7, 5) + "\n", [][2]int{{3, 7}}, ""},
		"the beginning is lost":         {bodyOf(6) + batchOf(1, 0, bodyOf(7)), [][2]int{{1, 7}}, "line 1: no communicator"},
		"a first line is damaged": {
			batchOf(1, 0, bodyOf(7)) + batchOf(2, 0, bodyOf(8))[9:] + batchOf(3, 0, bodyOf(9)), [][2]int{{1, 7}, {3, 9}}, "line 3: not a line",
		},
		"an operation is damaged": {batchOf(1, 0, bodyOf(7)[9:], bodyOf(8)), [][2]int{{1, 8}}, "line 2: not a line"},
	} {
		var p Parser
		var got [][2]int
		var problem string
		for i, text := range strings.Split(strings.TrimSpace(test.text), "\n") {
			r, err := p.Parse([]byte(text))
			if err != nil && problem == "" {
				problem = fmt.Sprintf("line %d: %v", i+1, err)
			}
			if r.Source != nil {
				got = append(got, [2]int{r.Rank, int(r.Sequence)})
				assert.Equal(t, Process{"n", int64(100 + r.Rank)}, r.Process)
				assert.EqualValues(t, 1790003000319428, r.Written)
			}
		}
		assert.Equal(t, test.want, got, name)
		assert.Contains(t, problem, test.problem, name)
		assert.Equal(t, test.problem == "", problem == "", name+": "+problem)
	}
}

func TestUnusableLinesAreErrors(t *testing.T) {
	good := lineOf(1, 4, 7, 300)
	for name, text := range map[string]string{
		"cut":                    good[:len(good)-20],
		"another object":         `{"a":1}`,
		"rank outside":           strings.Replace(good, `"rank":1`, `"rank":4`, 1),
		"negative rank":          strings.Replace(good, `"rank":1`, `"rank":-1`, 1),
		"no ranks":               strings.Replace(good, `"n_ranks":4`, `"n_ranks":0`, 1),
		"too many ranks":         strings.Replace(good, `"n_ranks":4`, `"n_ranks":2000000`, 1),
		"no time":                strings.Replace(good, `"coll_exec_time_us":300,`, ``, 1),
		"negative time":          strings.Replace(good, `"coll_exec_time_us":300`, `"coll_exec_time_us":-3`, 1),
		"time of years":          strings.Replace(good, `"coll_exec_time_us":300`, `"coll_exec_time_us":1099511627777`, 1),
		"number of 30 digits":    strings.Replace(good, `"coll_sn":7`, `"coll_sn":123456789012345678901234567890`, 1),
		"text instead of number": strings.Replace(good, `"coll_sn":7`, `"coll_sn":"7"`, 1),
	} {
		var p Parser
		_, err := p.Parse([]byte(good)) // so that there is a form
		require.NoError(t, err)
		_, err = p.Parse([]byte(text))
		assert.Error(t, err, name)
	}
}

func TestReadFilesSkipsWhatItCannotReadAndNamesIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n-pid1.log")
	require.NoError(t, os.WriteFile(path, []byte(lineOf(0, 1, 0, 5)+"\n\nrubbish\n"+strings.Repeat("x", 2*MaxLine)+"\r\n"+
		lineOf(0, 1, 1, 5)+"\r\n"+lineOf(0, 1, 2, 5)[:40]), 0o600))
	job, problems, err := ReadFiles(t.Context(), []string{path})
	require.NoError(t, err)
	assert.EqualValues(t, 2, job.Records)
	require.Len(t, problems, 1)
	assert.Contains(t, problems[0].Error(), "line 3: not a line of NCCL Inspector")
	assert.Contains(t, problems[0].Error(), "(and 1 further lines)")
	_, _, err = ReadFiles(t.Context(), []string{path + "x"})
	assert.ErrorContains(t, err, "n-pid1.logx")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(lineOf(1, 4, 7, 300)), []byte(lineOf(1, 4, 8, 12)))
	f.Add([]byte(`{"header":{"id":"0x1","rank":0,"n_ranks":1},"p2p_perf":{"p2p":"Recv","p2p_sn":1}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var p Parser
		_, _ = p.Parse(first)
		alone := Parser{batch: p.batch, written: p.written, left: p.left}
		got, err := p.Parse(second)
		want, wantErr := alone.Parse(second)
		require.Equal(t, wantErr == nil, err == nil)
		require.Equal(t, want, got)
		if err == nil && got.Source != nil {
			j := NewJob(true)
			j.Add(&got)
			j.Flush()
			j.Findings(nil)
		}
	})
}
