// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// call returns a runtime call.
func call(name string, corr, at int64, args string) string {
	return fmt.Sprintf(
		`{"ph":"X","cat":"cuda_runtime","name":%q,"pid":9,"tid":9,"ts":%d,"dur":2,"args":{%s"correlation":%d}}`,
		name, at, args, corr)
}

// kernel returns a kernel of the graph launch with the correlation.
func kernel(name string, corr, stream, start, end int64, args string) string {
	return fmt.Sprintf(`{"ph":"X","cat":"kernel","name":%q,"pid":0,"tid":%d,"ts":%d,"dur":%d,`+
		`"args":{"device":0,"stream":%d,"correlation":%d%s}}`, name, stream, start, end-start, stream, corr, args)
}

func ofKernel(name string) string { return fmt.Sprintf(`"kernel":%q,`, name) }

// capture returns the capture of a product of 64 × 128 by 128 × columns, a copy and an addition of
// ten numbers in a module. The addition also runs on the device, because its stream does not
// capture.
func capture(named bool, columns int) string {
	of := ofKernel
	if !named {
		of = func(string) string { return "" }
	}
	return strings.Join([]string{
		call("hipStreamBeginCapture", 1, 100, ""),
		`{"ph":"X","cat":"python_function","name":"nn.Module: Linear_7","pid":9,"tid":9,"ts":105,"dur":40,"args":{}}`,
		operator("aten::linear", 110, 30, fmt.Sprintf(
			`"Input type":["c10::Half","c10::Half"],"Input Dims":[[64,128],[%d,128]]`, columns)),
		operator("aten::mm", 112, 26, fmt.Sprintf(
			`"Input type":["c10::Half","c10::Half"],"Input Dims":[[64,128],[128,%d]]`, columns)),
		call("hipExtModuleLaunchKernel", 2, 115, of("gemm")),
		call("hipExtModuleLaunchKernel", 3, 120, of("splitk")),
		call("hipMemcpyAsync", 4, 150, ""),
		operator("aten::relu", 155, 10, `"Input type":["float"],"Input Dims":[[99]]`), // not captured
		call("hipLaunchKernel", 5, 157, of("relu")), kernel("relu", 5, 8, 200, 210, ""),
		operator("aten::add", 170, 10, `"Input type":["float","float","Scalar"],"Input Dims":[[10],[10],[]]`),
		call("hipLaunchKernel", 6, 172, of("add")),
		call("hipStreamEndCapture", 7, 190, ""),
	}, ",")
}

// Correlations of two launches of the graph, and one of another. Kernels are on two streams and
// start in a different order.
const firstReplay, secondReplay, otherReplay = 31, 32, 33

func replays(numbers bool) string {
	node := func(n int64) string {
		if !numbers {
			return ""
		}
		return fmt.Sprintf(`,"graph id":5,"graph node id":%d`, 5<<32|n)
	}
	var list []string
	for i, corr := range []int64{firstReplay, secondReplay} {
		at := int64(1000 * (i + 1))
		list = append(list, call("hipGraphLaunch", corr, at, ""),
			kernel("add", corr, 2, at+10, at+15, node(9)),
			kernel("gemm", corr, 1, at+11, at+31, node(1)), kernel("splitk", corr, 1, at+40, at+50, node(2)),
			fmt.Sprintf(`{"ph":"X","cat":"gpu_memcpy","name":"Memcpy DtoD (Device -> Device)","pid":0,"tid":1,"ts":%d,"dur":4,`+
				`"args":{"device":0,"stream":1,"correlation":%d,"bytes":40%s}}`, at+60, corr, node(3)))
	}
	return strings.Join(append(list, call("hipGraphLaunch", otherReplay, 4000, ""),
		kernel("gemm", otherReplay, 1, 4010, 4020, strings.ReplaceAll(node(1), "5", "6"))), ",")
}

func operatorsOf(r *facts.Report) map[string]facts.Operator {
	m := map[string]facts.Operator{}
	for _, o := range r.Operators {
		m[o.Name+" "+o.Shapes] = o
	}
	return m
}

func TestReplaysOfGraphsHaveTheOperatorsOfTheirCapture(t *testing.T) {
	for name, c := range map[string]struct {
		captured, replayed string
		apart              bool
	}{
		"by the names of kernels":    {capture(true, 32), replays(false), false},
		"by the numbers of nodes":    {capture(false, 32), replays(true), false},
		"captured in another file":   {capture(true, 32), replays(false), true},
		"numbers, from another file": {capture(false, 32), replays(true), true},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Detail: DetailKernels}
			text := "[" + c.captured + "," + c.replayed + "]"
			if c.apart {
				o.Captures = []string{filepath.Join(t.TempDir(), "capture.json")}
				require.NoError(t, os.WriteFile(o.Captures[0], []byte("["+c.captured+"]"), 0o600))
				text = "[" + c.replayed + "]"
			}
			b, st := convert(t, text, o)
			require.Len(t, st.Devices, 1)
			ops := operatorsOf(&st.Devices[0])
			product := ops["aten::linear f16[64,128] f16[32,128]"]
			assert.EqualValues(t, 2, product.Calls, "once for each replay, though it is two kernels")
			assert.EqualValues(t, 4, product.Kernels)
			assert.Equal(t, 60_000.0, float64(product.Time))
			assert.Equal(t, 2*2.0*64*128*32, product.FLOPs)
			assert.Equal(t, 2*2.0*(64*128+128*32+64*32), product.Bytes)
			assert.Equal(t, 2*120.0, ops["aten::add f32[10] f32[10]"].Bytes, "two operands and a result")
			assert.EqualValues(t, 1, ops["(no operator) "].Kernels, "of a graph of which nothing is known")

			found := 0
			for _, s := range spansNamed(b, "gemm", "splitk", "add") {
				a := s.Attributes().AsRaw()
				switch a["gpu.correlation.id"] {
				case int64(otherReplay):
					assert.NotContains(t, a, "gpu.graph.node.operator", "unknown is absent")
					assert.NotContains(t, a, "gpu.flop.count")
					continue
				case int64(firstReplay), int64(secondReplay):
				default:
					continue
				}
				found++
				if s.Name() == "add" {
					assert.Equal(t, "aten::add", a["gpu.graph.node.operator"])
					assert.Equal(t, 10.0, a["gpu.flop.count"], "the only kernel of its operator")
					assert.NotContains(t, a, "gpu.graph.node.range")
				} else {
					assert.Equal(t, "aten::mm", a["gpu.graph.node.operator"])
					assert.Equal(t, "nn.Module: Linear_7", a["gpu.graph.node.range"])
					assert.NotContains(t, a, "gpu.flop.count", "of two kernels none does it all")
				}
			}
			assert.Equal(t, 6, found)
			assert.Equal(t, []string{"1 of 3 launches of graphs have no operators: no capture has their kernels"},
				graphRemarks(st.Faults))
		})
	}
}

// HIP records launches that do not become nodes of the graph.
func TestReplaysMayLackAFewKernelsOfTheirCapture(t *testing.T) {
	more := func(names ...string) string {
		text := capture(true, 32)
		for i, name := range names {
			end := call("hipStreamEndCapture", 7, 190, "")
			text = strings.Replace(text, end, call("hipLaunchKernel", int64(40+i), int64(176+4*i), ofKernel(name))+","+end, 1)
		}
		return text
	}
	known := func(captured string) (int64, []string) {
		_, st := convert(t, "["+captured+","+replays(false)+"]", Options{Detail: DetailSteps})
		return st.Graphs.Known, graphRemarks(st.Faults)
	}
	n, remarks := known(more("fill"))
	assert.EqualValues(t, 2, n)
	assert.Contains(t, remarks, "2 of 3 launches of graphs run up to 2 kernels fewer than were captured; "+
		"their operators are "+
		"found by the names of the others")
	n, _ = known(more("fill", "fill"))
	assert.Zero(t, n, "two of six are too many")
	n, _ = known(strings.ReplaceAll(more("fill"), `"splitk"`, `"other"`))
	assert.Zero(t, n, "other kernels")
}

func graphRemarks(faults []string) (list []string) {
	for _, f := range faults {
		if strings.Contains(f, "graph") || strings.Contains(f, "capture") {
			list = append(list, f)
		}
	}
	return list
}

func spansNamed(b []ptrace.Traces, names ...string) []ptrace.Span {
	return slices.DeleteFunc(spansOf(b), func(s ptrace.Span) bool { return !slices.Contains(names, s.Name()) })
}

func TestInconclusiveCapturesAreReported(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte("["+text+"]"), 0o600))
		return path
	}
	narrow, wide := write("narrow.json", capture(true, 32)), write("wide.json", capture(true, 64))
	same := write("same.json", strings.ReplaceAll(capture(true, 32), "Linear_7", "Linear_8"))
	nested := write("nested.json", strings.Replace(capture(true, 32), "hipMemcpyAsync", "hipGraphLaunch", 1))
	var begun []string
	for i := range int64(70) {
		begun = append(begun, call("hipStreamBeginCapture", i+1, i, ""))
	}
	endless := write("endless.json", strings.Join(begun, ","))
	nothing := write("nothing.json", call("hipLaunchKernel", 3, 7, ""))
	for name, c := range map[string]struct {
		captures []string
		known    bool
		faults   []string
	}{
		"one": {
			[]string{narrow},
			true,
			[]string{"1 of 3 launches of graphs have no operators: no capture has their kernels"},
		},
		"none":     {nil, false, nil},
		"no graph": {[]string{nothing}, false, []string{fmt.Sprintf("no graph was captured in [%q]", nothing)}},
		"missing": {[]string{filepath.Join(folder, "gone", "*.json")}, false, []string{
			fmt.Sprintf("no captures in %q: file does not exist", filepath.Join(folder, "gone", "*.json")),
		}},
		"other shapes": {[]string{narrow, wide}, false, []string{
			"2 of 3 launches of graphs have no operators: several captures have their kernels, with other shapes " +
				"(name only the capture of the graph)",
			"1 of 3 launches of graphs have no operators: no capture has their kernels",
		}},
		"a graph in the graph": {[]string{nested}, false, []string{
			"1 captures of graphs were omitted: too many nodes or captures at one time, or a graph in the graph",
			"3 of 3 launches of graphs have no operators: no capture has their kernels",
		}},
		"captures without an end": {[]string{endless}, false, []string{
			"6 captures of graphs were omitted: too many nodes or captures at one time, or a graph in the graph",
			"3 of 3 launches of graphs have no operators: no capture has their kernels",
		}},
		"other modules": {[]string{narrow, same}, true, []string{
			"1 of 3 launches of graphs have no operators: no capture has their kernels",
		}},
		"a folder": {[]string{folder}, false, []string{
			"7 captures of graphs were omitted: too many nodes or captures at one time, or a graph in the graph",
			"2 of 3 launches of graphs have no operators: several captures have their kernels, with other shapes " +
				"(name only the capture of the graph)",
			"1 of 3 launches of graphs have no operators: no capture has their kernels",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, st := convert(t, "["+replays(false)+"]", Options{Detail: DetailKernels, Captures: c.captures})
			assert.Equal(t, c.faults, graphRemarks(st.Faults))
			for _, s := range spansNamed(b, "gemm", "splitk") {
				a := s.Attributes().AsRaw()
				if c.known && a["gpu.correlation.id"] != int64(otherReplay) {
					assert.Equal(t, "aten::mm", a["gpu.graph.node.operator"])
					if len(c.captures) > 1 {
						assert.NotContains(t, a, "gpu.graph.node.range", "which of two equal graphs it was is not known")
					}
				} else {
					assert.NotContains(t, a, "gpu.graph.node.operator")
				}
			}
		})
	}
}

// A folder of captures is read for the first file that launches graphs, and again after one of its
// files has changed.
func TestCapturesAreReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "capture.json")
	text := "[" + capture(true, 32) + "]"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	o := Options{Detail: DetailSteps, Captures: []string{path}, Cache: &link.CaptureCache{}}
	known := func() int64 {
		_, st := convert(t, "["+replays(false)+"]", o)
		return st.Graphs.Known
	}
	assert.EqualValues(t, 2, known())
	was, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("["+strings.Repeat(" ", len(text)-2)+"]"), 0o600))
	require.NoError(t, os.Chtimes(path, was.ModTime(), was.ModTime()))
	assert.EqualValues(t, 2, known(), "nothing says that the file is another one")
	require.NoError(t, os.Chtimes(path, was.ModTime(), was.ModTime().Add(time.Second)))
	assert.Zero(t, known(), "it changed")
	o.Cache = nil
	assert.Zero(t, known())
}

// TestRecordedReplaysHaveTheirOperators needs the traces of captures that accompany these in
// TraceLens.
func TestRecordedReplaysHaveTheirOperators(t *testing.T) {
	for _, c := range []struct {
		file    string
		known   int64
		product string
		calls   int64
		flops   float64
	}{
		{
			"sglang_decode/sglang_Qwen3-8B_decode.json.gz", 1,
			"aiter::gemm_a16w16 bf16[32,4096] bf16[24576,4096]", 36, 36 * 2.0 * 32 * 4096 * 24576,
		},
		{
			"vllm_decode_full/graph_execution.json.gz", 1,
			"vllm::rocm_unquantized_gemm bf16[32,2880] bf16[5120,2880] bf16[5120]", 24,
			24 * (2.0*32*2880*5120 + 32*5120),
		},
		{
			"vllm_prefilldecode_piecewise/graph_execution.json.gz", 25,
			"vllm::rocm_unquantized_gemm bf16[8192,2880] bf16[5120,2880] bf16[5120]", 24,
			24 * (2.0*8192*2880*5120 + 8192*5120),
		},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := recorded.Path(t, "kineto", "tracelens", "inference", c.file)
			folder := filepath.Join(filepath.Dir(path), "capture_traces")
			if _, err := os.Stat(folder); err != nil {
				t.Skip("no traces of captures: ", err)
			}
			_, st := read(t, path, Options{Detail: DetailSteps, Captures: []string{folder}})
			assert.Equal(t, c.known, st.Graphs.Launches)
			assert.Equal(t, c.known, st.Graphs.Known)
			o := operatorsOf(&st.Devices[0])[c.product]
			assert.Equal(t, c.calls, o.Calls)
			assert.Equal(t, c.flops, o.FLOPs)
		})
	}
}
