// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

func gz(t testing.TB, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

const oneEvent = `{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1000,"dur":5,"args":{"device":0,"stream":7,"correlation":3}}`

// rowsOf returns a trace with a host range, and an event in the row of a named process.
func rowsOf(process, event string) string {
	return fmt.Sprintf(`{"traceEvents":[{},{"ph":"M","name":"process_name","pid":800,"tid":0,"args":{"name":%q}},
		{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":"1","dur":5},
		{"ph":"X","pid":800,"tid":3,"ts":"2","dur":"1.5",%s}]}`, process, event)
}

func TestFilesThatAreNoTracesAreRefusedByName(t *testing.T) {
	whole := gz(t, `{"traceEvents":[`+oneEvent+`]}`)
	for name, c := range map[string]struct {
		text string
		is   error
		says string
	}{
		"empty.json":  {"", ErrNotTrace, "it is empty"},
		"space.json":  {" \n", ErrNotTrace, "it is empty"},
		"text.json":   {"hello", ErrNotTrace, "it begins with 'h'"},
		"number.json": {"17", ErrNotTrace, "it begins with '1'"},
		"executiontrace.json": {
			`{"schema":"1.0.1","nodes":[{"id":2,"name":"[pytorch|profiler|execution_trace|thread]"}]}`, ErrNotTrace,
			"it has no traceEvents: it is an execution trace of PyTorch",
		},
		"emptyobject.json": {"{}", ErrNotTrace, "it has no traceEvents"},
		"cut.json":         {`{"traceEvents":[` + oneEvent + `,{"ph":"X","na`, ErrTruncated, "after 1 events"},
		"cutafter.json":    {`{"traceEvents":[` + oneEvent, ErrTruncated, "after 1 events"},
		"cutclose.json":    {`{"traceEvents":[` + oneEvent + "]", ErrTruncated, "the file ends"},
		"nocolon.json":     {`{"traceEvents":[{"ph" "X"}]}`, ErrSyntax, "a colon is missing"},
		"nocomma.json": {
			`{"traceEvents":[` + oneEvent + oneEvent + `]}`, ErrSyntax,
			"a comma is missing between events",
		},
		"brackets.json":    {`{"traceEvents":[{"ph":"X","args":{"a":[1,2}}]}`, ErrSyntax, "brackets do not match"},
		"cut.json.gz":      {whole[:len(whole)/2], ErrTruncated, "the compressed data ends early"},
		"notail.json.gz":   {whole[:len(whole)-4], ErrTruncated, "the compressed data ends early"},
		"checksum.json.gz": {whole[:len(whole)-5] + "\x00" + whole[len(whole)-4:], gzip.ErrChecksum, "broken gzip data"},
		"run.nsys-rep": {
			"NVIDIA", ErrNotTrace,
			"it is a report of Nsight Systems (nsys export --type sqlite run.nsys-rep)",
		},
		"host.xplane.pb":  {"\n\x10", ErrNotTrace, "it is an XPlane profile (the receiver xplane reads them)"},
		"utf16.json":      {"\xff\xfe{\x00", ErrNotTrace, "it is text in UTF-16 (iconv -f UTF-16 -t UTF-8 utf16.json)"},
		"a.sqlite":        {"SQLite format 3\x00", ErrNotTrace, "it is an SQLite database"},
		"rubbish.json.gz": {whole + "rubbish after the end", gzip.ErrHeader, "broken gzip data"},
		"header.json.gz":  {"\x1f\x8b\x07" + strings.Repeat("\x00", 40), gzip.ErrHeader, "broken gzip data"},
		"ranks.tar.gz": {
			gz(t, "a.json"+strings.Repeat("\x00", 251)+"ustar\x0000"+strings.Repeat("\x00", 247)), ErrNotTrace,
			"it is a tar archive (unpack it)",
		},
		"twice.json.gz": {gz(t, whole), ErrNotTrace, "it was compressed twice (decompress it once)"},
		"7_hip_api_trace.csv": {
			`"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"` + "\n", ErrNotTrace,
			"it is a table of rocprofv3 in CSV (record with rocprofv3 --output-format json)",
		},
		"counters.csv": {
			`"Correlation_Id","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"` + "\n", ErrNotTrace,
			"it is a table of rocprofv3 in CSV",
		},
		"other.csv": {
			`"Name","Start_Timestamp","End_Timestamp"` + "\n", ErrNotTrace,
			"it is a table in CSV (for ROCm: rocprofv3 --output-format json;",
		},
		"proton.hatchet": {
			`[{"children":[],"frame":{"name":"ROOT","type":"function"},"metrics":{"count":0}}]`, ErrNotTrace,
			"it is a tree of sums, as of Triton's Proton, without a timeline",
		},
		"report1.json": {
			`{"globalVid":281474976710656}` + "\n" + `{"CudaEvent":{"startNs":"1","endNs":"2"}}`, ErrNotTrace,
			"it is JSON of Nsight Systems (nsys export --type sqlite)",
		},
		"spans.json": {`{"resourceSpans":[]}`, ErrNotTrace, "it is OTLP (otelcol-gpu check spans.json)"},
		"trace_view.json": {
			rowsOf("Ascend Hardware", `"name":"MatMulV2","args":{"Task Type":"AI_CORE","Stream Id":3}`), ErrForeign,
			"it is a trace of Ascend's profiler (torch_npu, msprof) (work of NPUs is not read)",
		},
		"host.trace.json.gz": {
			gz(t, rowsOf("/device:GPU:0", `"name":"loop_fusion","args":{"correlation_id":7}`)), ErrForeign,
			"it is a trace of XLA's profiler (JAX, TensorFlow) (profile the program with nsys profile",
		},
		"timeline.json": {
			rowsOf("/job:localhost/replica:0/task:0/device:GPU:0/stream:all Compute", `"cat":"Op","name":"MatMul"`), ErrForeign,
			"it is a trace of XLA's profiler",
		},
		"results.json": {
			rowsOf("CPU HIP API", `"name":"gemm","args":{"BeginNs":"2000","EndNs":"3500"}`), ErrForeign,
			"it is a trace of rocprof (record with rocprofv3 --output-format json)",
		},
		"warps.json": {
			`{"displayTimeUnit":"ns","traceEvents":[{"ph":"X","cat":"load","name":"load","pid":"gemm Core0 CTA1",` +
				`"tid":"warp 0 (line 0)","ts":1,"dur":2,"args":{}}]}`, ErrForeign,
			"it is a trace within kernels, as of Triton's Proton",
		},
		"unitrace.json": {
			rowsOf("RANK 0 DEVICE<node1>[Intel(R) Data Center GPU Max 1550] 0:29:0:0 #0", `"cat":"gpu_op","name":"gemm"`), ErrForeign,
			"it is a trace of Intel's unitrace (record with torch.profiler and ProfilerActivity.XPU)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
			_, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error {
				t.Error("something of a refused file was emitted")
				return nil
			})
			require.Error(t, err)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			assert.ErrorContains(t, err, path)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestReadablePartsAreRead(t *testing.T) {
	second := strings.Replace(oneEvent, "1000", "2000", 1)
	deep := strings.Repeat(`{"a":[`, 10_000) + strings.Repeat("]}", 10_000)
	for name, c := range map[string]struct {
		text    string
		kernels int64
		skipped map[string]int64
		fault   string
	}{
		"other elements": {
			"[null," + oneEvent + `,1,"x",[{}],` + second + "]", 2,
			map[string]int64{"event that is not an object": 4},
			"",
		},
		"a second trace":  {"[" + oneEvent + "][" + second + "]", 1, nil, "what follows the end of the trace at byte "},
		"a second object": {`{"traceEvents":[` + oneEvent + "]}\n{}", 1, nil, "what follows the end of the trace at byte "},
		"byte order mark": {"\xef\xbb\xbf[" + oneEvent + "]", 1, nil, ""},
		"carriage return": {"[\r\n" + oneEvent + ",\r\n" + second + "\r\n]\r\n", 2, nil, ""},
		"last comma":      {`{"traceEvents":[` + oneEvent + ",]}", 1, nil, ""},
		"open array":      {"[" + oneEvent + "," + second, 2, nil, ""},
		"twice":           {`{"traceEvents":[` + oneEvent + `],"traceEvents":[` + second + "]}", 2, nil, ""},
		"no number": {
			"[" + strings.Replace(oneEvent, "1000", "NaN", 1) + "," + strings.Replace(oneEvent, `"dur":5`, `"dur":-Infinity`,
				1) + "," + oneEvent + "]", 1,
			map[string]int64{"start time missing or no number": 1, "duration missing or no number": 1},
			"",
		},
		"no number in arguments": {"[" + strings.Replace(oneEvent, `"device":0`,
			`"device":NaN,"blocks per SM":Infinity,"bandwidth":inf`, 1) + "]", 1, nil, ""},
		"keys twice": {
			"[" + strings.Replace(oneEvent, `"ts":1000`, `"ts":"x","ts":1000,"args":{}`, 1) + "]", 1,
			nil, "",
		},
		"no category": {
			"[" + strings.Replace(oneEvent, `"kernel"`, "null", 1) + "," + strings.Replace(oneEvent, `"k"`, "null", 1) + "]", 1,
			map[string]int64{"event without a category": 1},
			"",
		},
		"rows of others": {
			strings.Replace(rowsOf("/device:TPU:0", `"name":"fusion"`), "{},", oneEvent+",", 1), 1,
			map[string]int64{"event without a category": 1},
			"work in rows of a trace of XLA's profiler (JAX, TensorFlow) is not read",
		},
		"rows that name no device": {
			"[" + oneEvent + "," + strings.ReplaceAll(strings.Join([]string{
				strings.Replace(second, `"pid":0`, `"pid":"stream 7"`, 1), strings.Replace(second, `"pid":0`, `"pid":"abc"`, 1),
				strings.Replace(second, `"pid":0`, `"pid":-1`, 1), strings.Replace(second, `"pid":0`, `"pid":null`, 1),
			}, ","), `"device":0,`, "") + "," + strings.Replace(second, `"device":0`, `"device":-1`, 1) + "]", 1,
			map[string]int64{"activity of a device that has no number": 5},
			"",
		},
		"counters": {
			"[" + oneEvent + "," + strings.Replace(second, "kernel", "cuda_profiler_range", 1) + "]", 1,
			map[string]int64{"range of counters (cuda_profiler_range)": 1},
			"",
		},
		"not UTF-8":  {"[" + strings.Replace(oneEvent, `"k"`, "\"k\xff\xc3\"", 1) + "]", 1, nil, ""},
		"not UTF-16": {"[" + strings.Replace(oneEvent, `"k"`, `"k\ud800x\u00zz"`, 1) + "]", 1, nil, ""},
		"zero byte":  {"[" + strings.Replace(oneEvent, `"k"`, "\"k\x00\t\"", 1) + "]", 1, nil, ""},
		"long string": {"[" + strings.Replace(oneEvent, `"k"`, `"`+strings.Repeat("k", 5<<20)+`"`, 1) + "," +
			second + "]", 2, nil, ""},
		"deep nesting": {"[" + strings.Replace(oneEvent, `"args":{`, `"args":{"x":`+deep+`,`, 1) + "," + second +
			"]", 2, nil, ""},
		"members of gzip":    {gz(t, "["+oneEvent+",") + gz(t, second+"]"), 2, nil, ""},
		"no members of gzip": {gz(t, "["+oneEvent+"]") + string(make([]byte, 1000)), 1, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, st := convert(t, c.text, Options{Detail: DetailKernels})
			assert.Equal(t, c.kernels, st.Kernels)
			if c.skipped == nil {
				c.skipped = map[string]int64{}
			}
			assert.Equal(t, c.skipped, st.Skipped)
			if c.fault == "" {
				assert.Empty(t, st.Faults)
			} else {
				require.Len(t, st.Faults, 1)
				assert.Contains(t, st.Faults[0], c.fault)
			}
			for _, s := range spansOf(b) {
				assert.True(t, utf8.ValidString(s.Name()))
			}
		})
	}
}

// Streams that are not numbers, such as addresses, are not the row's stream, which belongs to another one.
func TestStreamsThatAreAddressesStayApart(t *testing.T) {
	seen := map[any]bool{}
	of := func(stream string) string { return strings.Replace(oneEvent, `"stream":7`, `"stream":`+stream, 1) }
	batches, st := convert(t, "["+strings.Join([]string{of("7"), of(`"0x7f3c"`), of("18446744073709551615"), of("null")}, ",")+"]",
		Options{Detail: DetailKernels})
	assert.EqualValues(t, 4, st.Kernels)
	for _, s := range spansOf(batches) {
		if id, ok := s.Attributes().Get("gpu.stream.id"); ok {
			seen[id.AsRaw()] = true
		}
	}
	assert.Len(t, seen, 3)
	assert.True(t, seen[int64(7)])
}

func TestPartialReadsTheValidBeginning(t *testing.T) {
	whole := gz(t, "["+strings.Repeat(oneEvent+",", 1000)+oneEvent+"]")
	for text, fault := range map[string]string{
		`{"traceEvents":[` + oneEvent +
			`,{"ph":"X","na`: "only the beginning could be read: truncated: the file ends at byte ",
		"[" + oneEvent +
			",": "only the beginning could be read: truncated: the file ends at byte ",
		`{"traceEvents":[` + oneEvent + `,{"ph" "X"}]}`: "only the beginning could be read: broken JSON at byte ",
		whole[:len(
			whole)-10]: "only the beginning could be read: truncated: the compressed data ends early",
	} {
		_, err := Read(t.Context(), strings.NewReader(text), Options{}, nil)
		require.Error(t, err)
		_, st := convert(t, text, Options{Detail: DetailKernels, Partial: true})
		assert.Positive(t, st.Kernels)
		require.Len(t, st.Faults, 1)
		assert.Contains(t, st.Faults[0], fault)
	}
	for _, text := range []string{"hello", "{}", `{"traceEvents":[`, "", `{"traceEvents":[{"ph" "X"}]}`} {
		_, err := Read(t.Context(), strings.NewReader(text), Options{Partial: true}, nil)
		assert.Error(t, err, "%q: nothing can be read", text)
	}
}

func TestMissingFilesAndFoldersAreRefusedByName(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadFile(t.Context(), filepath.Join(dir, "none.json"), Options{}, nil)
	assert.ErrorContains(t, err, "none.json")
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = ReadFile(t.Context(), dir, Options{}, nil)
	assert.ErrorContains(t, err, "is a directory, not a regular file")
}

func TestRecordedFilesThatAreNoTracesAreRefused(t *testing.T) {
	for path, ref := range references(t, "kineto") {
		if ref.Kineto == nil || *ref.Kineto {
			continue
		}
		_, err := ReadFile(t.Context(), path, Options{}, nil)
		require.ErrorIs(t, err, ErrNotTrace)
		assert.ErrorContains(t, err, path)
	}
}

func TestEmptyTraceHasNoSpans(t *testing.T) {
	st, err := Read(t.Context(), bytes.NewReader([]byte(`{"traceEvents":[]}`)), Options{}, nil)
	require.NoError(t, err)
	assert.Zero(t, st.Spans)
}

func TestErrorOfTheConsumerIsReturned(t *testing.T) {
	full := errors.New("full")
	_, err := Read(t.Context(), bytes.NewReader([]byte("["+oneEvent+"]")), Options{},
		func(context.Context, ptrace.Traces) error { return full })
	assert.ErrorIs(t, err, full)
}

func TestReadingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	_, err := Read(ctx, bytes.NewReader([]byte("["+oneEvent+"]")), Options{}, nil)
	assert.ErrorIs(t, err, gone)
}

// Impossible device properties count as absent, so that no sum includes them.
func TestNumbersThatNoDeviceHasAreAbsent(t *testing.T) {
	event := func(cat, name string, at int, args string) string {
		return fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":0,"tid":7,"ts":%d,"dur":5,"args":{"device":0,"stream":7,%s}}`,
			cat, name, at, args)
	}
	for _, n := range []string{"-7", "-9223372036854775808", "9223372036854775807", "1e18"} {
		text := "[" + strings.Join([]string{
			event("kernel", "gemm", 100, fmt.Sprintf(`"registers per thread":-7,"shared memory":5,"grid":[-7,1,1],"block":[32,1,1],
				"est. achieved occupancy %%":%s,"blocks per SM":-7,"warps per SM":-7`, n)),
			event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 110, `"bytes":`+n),
			event("gpu_memset", "Memset (Device)", 120, `"bytes":`+n),
		}, ",") + "]"
		for _, level := range []Detail{DetailAuto, DetailKernels} {
			batches, st := convert(t, text, Options{Detail: level, Attributes: spanfacts.Full})
			assert.EqualValues(t, 3, st.Kernels+st.Copies+st.Memsets)
			for _, td := range batches {
				require.NoError(t, conformance.Traces(td))
			}
			for _, s := range spansOf(batches) {
				for _, key := range []string{
					"gpu.io.size", "gpu.summary.copy.size", "gpu.summary.memset.size", "gpu.kernel.registers", "gpu.kernel.grid",
					"gpu.kernel.occupancy.estimate", "gpu.kernel.blocks_per_sm", "gpu.kernel.warps_per_sm",
				} {
					_, ok := s.Attributes().Get(key)
					assert.False(t, ok, "%s of %s", key, s.Name())
				}
			}
		}
	}
}
