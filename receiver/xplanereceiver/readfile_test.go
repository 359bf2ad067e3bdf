// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

func TestEachRowBecomesWhatItIs(t *testing.T) {
	for name, b := range map[string][]byte{"plain": profile(), "gzip": packed(t, profile())} {
		list, st, err := spans(t, write(t, b), kernels)
		require.NoError(t, err, name)
		const base = 1_000_000_000
		step := named(list, "train")[0]
		assert.Equal(t, [2]int64{base, base + 9000}, [2]int64{step.Start, step.End})
		assert.EqualValues(t, 4, step.Int("gpu.step.index"))
		gemm := named(list, "gemm")
		require.Len(t, gemm, 1, "the row of operators repeats the streams")
		assert.Equal(t, [2]int64{base + 3000, base + 5001}, [2]int64{gemm[0].Start, gemm[0].End}, "rounded down")
		assert.EqualValues(t, 1, gemm[0].Int("gpu.device.ordinal"))
		copied := named(list, "MemcpyH2D")[0]
		assert.Equal(t, "host_to_device", copied.Text("gpu.copy.direction"))
		assert.Equal(t, "pinned", copied.Text("gpu.copy.host_memory"))
		assert.EqualValues(t, 4096, copied.Int("gpu.io.size"))
		assert.Len(t, named(list, "load"), 1, "an annotation of the program")
		assert.Empty(t, named(list, "input.py(7): read"), "frames explain idle time, and are no spans")
		assert.Equal(t, map[string]int64{"row that was derived from the others (XLA Ops)": 1}, st.Skipped)
		assert.EqualValues(t, 8, st.Records)
		require.Len(t, st.Devices, 1)
		assert.Equal(t, "dot.1", st.Devices[0].Operators[0].Name)
	}
}

// As XLA of 2024 writes them on an MI300X: no kind of memory, and values that nobody set.
func TestActivitiesOfROCm(t *testing.T) {
	gpu := planeOf("/device:GPU:0", []string{"CopyDeviceToDevice", "fill", "gemm"},
		row(8, "Stream #8(MemcpyOther)", 0,
			at(1, 1_000_000, 9_000_000, textStat(statCopy, "kind:Unknown size:655360 dest:2 async:1")),
			at(2, 20_000_000, 1_000_000, textStat(statMemset, "kind:Unknown num_bytes:64"))),
		row(1, "Stream #1(Kernel)", 0, at(3, 30_000_000, 5_000_000,
			textStat(statDetails, "regs:2191500840 static_shared:32462 grid:1280,1,1 block:256,1,1 occ_pct:0"))))
	list, _, err := spans(t, write(t, message{}.in(1, gpu)), kernels)
	require.NoError(t, err)
	copied, set, gemm := named(list, "CopyDeviceToDevice")[0], named(list, "fill")[0], named(list, "gemm")[0]
	assert.Equal(t, "copy", copied.Text("gpu.operation.type"))
	assert.Equal(t, "device_to_device", copied.Text("gpu.copy.direction"))
	assert.EqualValues(t, 655_360, copied.Int("gpu.io.size"))
	assert.Equal(t, "memset", set.Text("gpu.operation.type"))
	assert.Equal(t, "kernel", gemm.Text("gpu.operation.type"))
	for _, key := range []string{
		"gpu.kernel.registers", "gpu.kernel.shared_memory.size", "gpu.kernel.occupancy.estimate",
	} {
		assert.NotContains(t, gemm.Attributes, key)
	}
}

func TestAbsoluteTimesNeedNoStart(t *testing.T) {
	const start = 1_790_003_000_000_000_000
	m := message{}.in(1, planeOf("/device:GPU:0", []string{"gemm"}, row(7, "Stream #7(Compute)", start, at(1, 5000, 2000))))
	list, st, err := spans(t, write(t, m), kernels)
	require.NoError(t, err)
	assert.EqualValues(t, start+5, named(list, "gemm")[0].Start)
	assert.Empty(t, st.Faults)
}

func TestWhatHasNoTimeOrNoNameIsCounted(t *testing.T) {
	m := message{}.in(1, planeOf("/device:GPU:0", []string{"gemm"}, row(7, "Stream #7(Compute)", 0,
		message{}.number(1, 1).number(5, 12).number(3, 9000), at(99, 0, 1000), at(1, 1000, -5), at(1, 0, math.MinInt64),
		at(1, math.MinInt64, 5), at(1, math.MaxInt64, 5)), row(8, "Stream #8(Compute)", math.MaxInt64-10, at(1, 50_000, 5))))
	list, st, err := spans(t, write(t, m.text(2, "dropped 3 events")), kernels)
	require.NoError(t, err)
	assert.Len(t, named(list, "unknown"), 1)
	assert.Equal(t, map[string]int64{"sum of events without times": 1, "negative duration": 2, event.ErrTimeRange.Error(): 3}, st.Skipped)
	assert.Contains(t, st.Faults, "the profiler says: dropped 3 events")
}

func TestRejectedFilesSayWhy(t *testing.T) {
	whole := profile()
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":           {nil, ErrNotXSpace},
		"no planes":       {message{}.text(4, "node7"), ErrNotXSpace},
		"cut":             {whole[:len(whole)-40], ErrTruncated},
		"cut in gzip":     {packed(t, whole)[:200], ErrTruncated},
		"text":            {[]byte("hello, world"), ErrBroken},
		"longer than it":  {message{}.in(1, message{}.text(2, "/host:CPU").number(3, 1)), ErrBroken},
		"group":           {protoGroup, ErrBroken},
		"inner too long":  {message{}.in(1, message{0x1a, 0x7f, 0x08}), ErrBroken},
		"broken event":    {message{}.in(1, planeOf("/host:CPU", nil, row(1, "python", 0, message{0x0a}))), ErrBroken},
		"planes":          {bytes.Repeat(message{}.in(1, nil), maxRows+1), ErrBroken},
		"no number":       {message{}.in(1, planeOf("/host:CPU", nil, message{}.text(1, "x"))), ErrBroken},
		"overlong number": {[]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, ErrBroken},
	} {
		path := write(t, c.b)
		_, _, err := spans(t, path, kernels)
		require.ErrorIs(t, err, c.want, name)
		assert.ErrorContains(t, err, path, name)
	}
}

// protoGroup is a plane of the type group, which protobuf does not have any more.
var protoGroup = []byte{0x0b, 0x0c}

// A table may claim more than a file's reader keeps: names are lost, events are not.
func TestTablesAreBounded(t *testing.T) {
	long := string(make([]byte, maxText+1))
	m := planeOf("/device:GPU:0", []string{"gemm"}, row(7, "Stream #7(Compute)", 0, at(2, 0, 1000))).in(4, entry(2, long))
	list, st, err := spans(t, write(t, message{}.in(1, m)), kernels)
	require.NoError(t, err)
	assert.Len(t, named(list, "unknown"), 1)
	assert.EqualValues(t, 1, st.Skipped["entry of a table that is too large (its events have no name)"])
}

// A small file may expand to any size, in one field that would be skipped.
func TestExpansionIsBounded(t *testing.T) {
	m := message{}.in(1, message{}.in(9, make([]byte, leastInflated)))
	bomb := packed(t, m)
	require.Less(t, len(bomb)*maxInflation, leastInflated)
	path := write(t, bomb)
	_, _, err := spans(t, path, kernels)
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorContains(t, err, "expands to more than 200 times its size (if it is a profile, decompress it first)")
}

// A TPU with two SparseCores is one device: the cores' rows run at the same time, their statistics
// are not the device's, and statistics of bytes have no meaning here.
func TestCoresOfATPUAreOneDevice(t *testing.T) {
	const statType, statPeak, statFlops = 20, 21, 22
	described := func(m message) message {
		return m.in(5, entry(statType, "device_type_string")).in(5, entry(statPeak, "peak_teraflops_per_second")).
			in(5, entry(statFlops, "flops"))
	}
	opaque := message{}.number(1, statFlops).text(6, "\x08\xff\x01")
	double := message(protowire.AppendFixed64(protowire.AppendTag(message{}.number(1, statPeak), 2, protowire.Fixed64Type),
		math.Float64bits(100)))
	var m message
	for core := range 2 { // before the plane of the device
		p := planeOf(fmt.Sprintf("/device:TPU:0 SparseCore %d", core), []string{"gather"},
			row(3, "Sparse Core Ops", 0, at(1, 2_000_000, 4_000_000, opaque)))
		m = m.in(1, described(p).in(6, textStat(statType, "SparseCore")))
	}
	p := planeOf("/device:TPU:0", []string{"fusion"}, row(3, "XLA Ops", 0, at(1, 0, 4_000_000, stat(statFlops, 200_000_000))))
	m = m.in(1, described(p).in(6, message{}.number(1, statType).text(6, "\xff")).in(6, textStat(statType, "TPU v4")).in(6, double))
	list, st, err := spans(t, write(t, m), kernels)
	require.NoError(t, err)
	require.Len(t, st.Devices, 1)
	d := st.Devices[0]
	assert.Equal(t, "TPU v4", d.Model)
	window := named(list, "GPU 0")[0]
	assert.EqualValues(t, 3, window.Int("gpu.window.kernel.count"))
	assert.Equal(t, map[string]any{"flops": 2e8, "busy": 6e-6, "sum": 12e-6}, map[string]any{
		"flops": window.Attributes["gpu.flop.count"], "busy": window.Attributes["gpu.window.busy.duration"],
		"sum": window.Attributes["gpu.window.kernel.duration"],
	})
	for _, s := range named(list, "gather") {
		assert.NotContains(t, s.Attributes, "gpu.flop.count")
	}
}

// Remedies are in the terms of JAX if names in the file are JAX's; otherwise they say which part is
// for JAX.
// A loop contains its operators on the same row: their time and work count once, and the loop has
// the times between them.
func TestTimeInsideALoopCountsOnce(t *testing.T) {
	const us, statFlops = 1_000_000, 22
	p := planeOf("/device:TPU:0", []string{"while", "fusion", "copy"}, row(3, "XLA Ops", 0,
		at(1, 1*us, 10*us, stat(statFlops, 900)), at(2, 2*us, 3*us, stat(statFlops, 300)), at(2, 6*us, 3*us, stat(statFlops, 600)),
		at(3, 11*us, 2*us)), row(4, "Async XLA Ops", 0, at(3, 0, 20*us)))
	p = p.in(5, entry(statFlops, "flops"))
	list, _, err := spans(t, write(t, message{}.in(1, p)), kernels)
	require.NoError(t, err)
	total := map[string]float64{}
	flops := 0.
	for _, s := range list {
		total[s.Name] += float64(s.End-s.Start) / 1e9
		if f, ok := s.Attributes["gpu.flop.count"].(float64); ok && s.Name != "GPU 0" {
			flops += f
		}
	}
	assert.InDelta(t, 4e-6, total["while"], 1e-12)
	assert.InDelta(t, 6e-6, total["fusion"], 1e-12)
	assert.InDelta(t, 22e-6, total["copy"], 1e-12, "asynchronous operators overlap")
	assert.InDelta(t, 900, flops, 1e-9)
}

func TestRemediesAreForTheFrameworkThatTheFileStates(t *testing.T) {
	version := planeOf("/host:metadata", nil).in(5, entry(30, "jax_version")).in(6, textStat(30, "0.12"))
	tables := func(name string) message {
		return planeOf("/host:metadata", nil).in(5, entry(30, "x")).in(5, entry(31, name))
	}
	for name, c := range map[string]struct {
		host string
		more message
		jax  bool
	}{
		"version of JAX": {"load", version, true}, "call of JAX": {"PjitFunction(f)", nil, true}, "module": {"load", tables("jit_step"), true},
		"scope": {"load", tables("pmap(f)/add"), true}, "TensorFlow": {"load", tables("a_inference_step_12"), false},
		"PyTorch/XLA": {"load", tables("SyncTensorsGraph.34"), false}, "nothing": {"load", nil, false},
	} {
		m := message{}.in(1, planeOf("/host:CPU", []string{c.host}, row(3, "python", 0, at(1, 0, 5_000_000_000)))).in(1, c.more)
		_, st, err := spans(t, write(t, m), kernels)
		require.NoError(t, err, name)
		require.NotNil(t, st.Host, name)
		assert.Contains(t, st.Host.Remedy, "jax.devices()", name)
		assert.Equal(t, c.jax, !strings.HasPrefix(st.Host.Remedy, "in JAX: "), name)
	}
}

func TestPrecisionIsTheResults(t *testing.T) {
	for text, want := range map[string]string{
		"%fusion.1 = bf16[2048,2048]{1,0} fusion(%p0)": "bf16", "%dot = (f16[2], f32[3]) dot(%a)": "fp16",
		"%x = f32[2] add(%a)": "", "gemm": "", "%q = s8[4] dot(%a)": "int8",
	} {
		assert.Equal(t, want, precision(text), text)
	}
}

func TestFilesOfSeveralHostsAreRanksOfOneJob(t *testing.T) {
	first := write(t, profile())
	dir := filepath.Dir(first)
	second := filepath.Join(dir, "other.xplane.pb.gz")
	require.NoError(t, os.WriteFile(second, packed(t, profile()), 0o600))
	for rank, path := range []string{first, second} {
		var list []ptrace.Traces
		_, err := ReadFile(t.Context(), path, kernels, func(_ context.Context, td ptrace.Traces) error {
			list = append(list, td)
			return nil
		})
		require.NoError(t, err)
		res := list[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
		assert.EqualValues(t, rank, res["gpu.job.rank"])
		assert.EqualValues(t, 2, res["gpu.job.world_size"])
		assert.Equal(t, filepath.ToSlash(dir), res["gpu.job.id"])
	}
}

func FuzzFile(f *testing.F) {
	whole := profile()
	f.Add(uint16(10), []byte{0xff}, uint16(0))
	f.Add(uint16(len(whole)/2), []byte("nonsense"), uint16(3))
	f.Fuzz(func(t *testing.T, at uint16, with []byte, cut uint16) {
		b := append([]byte(nil), whole...)
		copy(b[int(at)%len(b):], with)
		list, _, err := spans(t, write(t, b[:len(b)-int(cut)%len(b)]), kernels)
		if err != nil {
			require.Empty(t, list)
		}
	})
}
